"""Checkpoints of a run.

The store on disk, the retention rule, the manager that writes checkpoints beside training, and the export of the best
one.
"""
