"""Measure the live monitor: a long run that is opened, and a real one that is watched.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
