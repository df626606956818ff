"""The command ``longshore sft``: supervised training on conversations and on trajectories of runs.

``preparation`` checks everything and reads the data (:mod:`launch.data`) before a learner process starts; ``trainer``
is the loop over the learner's ranks, which resumes exactly from a checkpoint; ``exports`` writes the trained model.
"""
