"""What is maximised, as pure tensor functions: the objective, advantages, surrogates, corrections, the reference
penalty and the metrics of an update. Layers: objective, token_columns and ratios; then corrections, advantages,
aggregation and reward_shaping; then surrogates and metrics; policy_loss puts them together. Importing
learner.losses.objective loads no torch."""
