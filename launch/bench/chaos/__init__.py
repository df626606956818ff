"""Kills processes of a whole run, and accounts for every acknowledged trajectory.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
