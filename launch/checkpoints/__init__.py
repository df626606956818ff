"""Checkpoints of a run.

The store on disk, the retention rule, the manager that writes checkpoints in the background, and the export of the best
one.
"""
