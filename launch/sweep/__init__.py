"""Sweeps: one command, many runs or evaluations that differ along axes."""
