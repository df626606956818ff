"""Rewards: one file each, from a grade and a status to a number with its parts."""
