"""Reads the recorded trajectories of runs and evaluations, for replay, export and comparison."""
