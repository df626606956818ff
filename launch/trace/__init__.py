"""What each process of a run was at, over time, as a file that Perfetto and Chrome draw: from what the run wrote."""
