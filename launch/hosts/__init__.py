"""The hosts of a run: the nodes that take part, their requirements, and the actors that run on them.

A run's directory is on the driver's host only.  On each other host its actors write below ``cluster.scratch_dir``,
and the driver copies what grows there (:mod:`.file_sync`, :mod:`.node_agent`); weights and the run's model arrive
there block by block (:mod:`actors.weight_transport.host_cache`).

:mod:`.node_checks` inspects every node before anything starts, :mod:`.membership` follows nodes that join or are lost,
:mod:`.placement` decides which actor goes where, and :mod:`.slot_reservation` holds the cluster's resources for them.
"""
