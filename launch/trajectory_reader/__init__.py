"""Trajectories that runs and evaluations have left, for what runs them again and what hands them on."""
