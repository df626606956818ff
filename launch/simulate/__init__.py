"""The simulator: the real conductor, staleness, routing and journal on a virtual clock."""
