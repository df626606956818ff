"""The reader of recorded trajectories: those that a run exported and those that an evaluation saved, as conversations
with a verdict, found by the names that people type."""
