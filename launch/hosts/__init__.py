"""Machines other than the driver's: what they must have, what they get, and what comes back from them.

A run's directory is on the driver's machine alone.  On each other machine its actors write below
``cluster.scratch_dir``, and the driver takes what grows there (:mod:`.mirror`, :mod:`.outpost`); weights, and the
run's model, come there block by block (:mod:`actors.weight_transport.host_cache`).  :mod:`.checking` asks every node, before
anything starts, for what it needs; :mod:`.roster` says who joined and who is gone.
"""
