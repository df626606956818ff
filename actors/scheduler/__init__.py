"""The scheduler decides which task is rolled out next and for whom.

It opens groups, hands rollout requests to workers, takes them back, and runs evaluations.  Rules without I/O are at the
bottom (admission, curriculum, task sampler, request queue, staleness ledger, failure rates), the scheduler core puts
them together, and the actor :class:`~actors.scheduler.rollout_scheduler.RolloutScheduler` carries out what the core
decides. Workers wait for the scheduler; the scheduler waits for the buffer.
"""
