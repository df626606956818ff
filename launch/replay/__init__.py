"""Replays the actions of a trajectory in a fresh sandbox, or the training steps of a run."""
