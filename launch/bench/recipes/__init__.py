"""Runs a few steps of every recipe on a tiny model, in real sandboxes.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
