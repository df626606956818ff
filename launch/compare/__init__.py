"""Evaluations held against each other, task by task."""
