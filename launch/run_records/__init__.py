"""The records of a run in its directory.

The driver's lock and starts, the stored configuration and its changes, the reproducibility record, and the metrics
of its steps; :mod:`.run_context` joins what the parts of a run share.  The package imports launch.config and nothing
above it.
"""
