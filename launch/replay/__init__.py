"""Does recorded work again and compares the outcome, for those who doubt a reward or a step: ``longshore replay``.

A trajectory's actions run in a fresh sandbox without a model, and the results and the verdict are compared with the
recorded ones.  A run's training is repeated on its recorded trajectories, and the weights are compared bit by bit.
"""
