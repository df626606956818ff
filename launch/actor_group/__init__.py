"""The actors of a run and the nodes they live on.

The group starts, supervises and stops them; the learner group calls all learner ranks as one; the health monitor
restarts what died or hangs.

The package imports launch.hosts and launch.weight_sync; checkpoints, data, training and the driver import it.
"""
