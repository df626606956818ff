"""Measure whole runs under the training modes sync, one-step-off and async.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
