"""Measures the trajectory stream against Ray's queue, plain ZeroMQ and plain SQLite.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
