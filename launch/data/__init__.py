"""The data of a run: its tasks, its starting model and the warm start.

The model folder, the split of tasks into training and held-out ones, conversations for supervised training, and the
warm start.  Only :mod:`.warm_start` calls the learner; everything else loads no Ray.
"""
