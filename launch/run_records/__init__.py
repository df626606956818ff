"""The records of a run in its directory.

The driver's lock and attempts, the stored configuration and its changes, the reproducibility record, and the metrics
of its steps.  The package imports launch.config and nothing above it.
"""
