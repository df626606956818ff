"""Checkpoints of a run.

The store on disk, the rule which of them stay, the manager that writes them beside training, and the export of the
best one.
"""
