"""The loss as pure tensor functions: objective, advantages, surrogates, corrections, KL penalty and metrics.

Layers, from below: settings, token_columns and ratios; objective, corrections, advantages, aggregation, reference_kl
and reward_shaping; surrogates; metrics; policy_loss, which composes them.  Importing learner.losses.objective loads no
torch.
"""
