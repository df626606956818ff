"""Training: one step turns a batch of trajectories into better weights, on Megatron-Core.

The entry point is :class:`learner.rank.LearnerRank`.  This package imports only protocol; importing it loads neither
torch nor megatron, which :meth:`~learner.rank.LearnerRank.setup` does.
"""
