"""Measures whole runs in the training modes sync, one_step_off and async.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
