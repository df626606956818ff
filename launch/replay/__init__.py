"""Replays recordings: one trajectory's actions in a fresh sandbox, or a run's training."""
