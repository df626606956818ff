"""Run a few steps of every recipe on a tiny model, in real sandboxes.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
