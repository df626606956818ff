"""Writes the activity of a run's processes over time as a file for Perfetto and Chrome: from what the run wrote."""
