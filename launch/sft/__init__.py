"""Supervised training: conversations and stored trajectories become weighted sequences, and these a trained folder.

``conversations`` reads the field's JSON shapes, ``examples`` makes token ids, loss masks and weights of them and of a
run's trajectories, ``plan`` says which are trained in which step: all before a process of the learner is started.
``trainer`` is the loop over its ranks, which goes on from a checkpoint bit for bit.  A run's ``[warm_start]`` reads its
``data`` through the first three too.
"""
