"""The trajectory buffer: an actor that receives trajectories, keeps them durable and leases whole groups to the
learner.

The journal's thread, the receiver's service and the buffer's events are at the bottom; the actor joins them.  It waits
for nobody; the scheduler and the training loop wait for it.
"""
