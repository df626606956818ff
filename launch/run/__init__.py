"""One run from its command line to its summary: arguments, preflight checks, the driver, and the proof with its control
runs.  It is the top of launch; only commands import it."""
