"""The loss as pure tensor functions: objective, advantages, surrogates, corrections, KL penalty and metrics.

``policy_loss`` composes them.  Importing learner.losses.objective loads no
torch.
"""
