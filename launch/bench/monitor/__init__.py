"""Measures the live monitor: opening a long run, and watching a real one.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
