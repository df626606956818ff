"""The training loop and its rules.

The loop (:mod:`.loop`) leases a batch, steps, marks, publishes and checkpoints, and recovers from the death of a
learner.  It waits for the buffer and the learner, for nobody else.  Its parts publish weights
(:mod:`.weight_publisher`), record steps (:mod:`.step_recorder`) and check that engine and learner agree on
log-probabilities; batch fill, stop budget and the limit of non-finite batches are pure rules.

The package imports control, weight sync, checkpoints and evaluation; only launch.run imports it.
"""
