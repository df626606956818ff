"""Hosts of a run: which nodes take part, what each must have, and what runs on it.

A run's directory is on the driver's host alone.  On each other host its actors write below ``cluster.scratch_dir``,
and the driver copies what grows there (:mod:`.file_sync`, :mod:`.node_agent`); weights and the run's model arrive
there block by block (:mod:`actors.weight_transport.host_cache`).

:mod:`.node_checks` inspects every node before anything starts, :mod:`.membership` tells who joined and who is gone,
:mod:`.placement` decides which actor goes where, and :mod:`.slot_reservation` holds the cluster's resources for them.
"""
