"""Measure the trajectory stream beside Ray's queue, plain ZeroMQ and plain SQLite.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
