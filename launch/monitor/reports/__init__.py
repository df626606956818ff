"""HTML files that need no network: the run's report, and the page of a single trajectory or group."""
