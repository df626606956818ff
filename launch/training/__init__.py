"""The training loop and its parts.

:mod:`.loop` leases a batch, steps, marks it trained, publishes weights and checkpoints.  :mod:`.batch_leasing` waits
for the batch, :mod:`.state_writer` writes weights and checkpoints beside the next steps, :mod:`.recovery` starts from a
checkpoint and goes back to one when the learner dies, :mod:`.learner_client` calls the learner, and
:mod:`.parity_checker` compares the log-probabilities of engine and learner.  Batch fill, budget and the limit of
non-finite batches are pure rules.

The package imports control, weight sync, checkpoints and evaluation.
"""
