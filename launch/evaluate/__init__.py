"""Evaluating a model on tasks, apart from any run."""
