"""The actors of a run and their nodes.

:class:`.group.ActorGroup` starts and stops them.  Each kind has its spec (:mod:`.specs`) and its group: engines,
workers, learner ranks, and the actors of an online evaluation.  :mod:`.node_supervisor` watches them node by node,
with :mod:`.health_monitor` for the processes.

The package imports launch.hosts and launch.weight_sync; checkpoints, data, training and the driver import it.
"""
