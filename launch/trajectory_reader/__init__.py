"""Recorded trajectories as conversations with a verdict, and the reader of those that a run exported.

Evaluations read their own into the same types (:mod:`launch.evaluation.results.saved_trajectories`).
"""
