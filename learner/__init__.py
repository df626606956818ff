"""Training: one step turns a batch of trajectories into better weights, on Megatron-Core.

The door is :class:`learner.rank.LearnerRank`.  This room imports protocol only; importing it loads neither torch nor
megatron, :meth:`~learner.rank.LearnerRank.setup` does.
"""
