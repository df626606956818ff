"""Writes recorded trajectories of runs and evaluations in the formats of other projects."""
