"""Uses one small run and the servers around it for a long time, and finds what grows.

``benchmark`` has the arguments and the report, and uses the other modules of this folder.
"""
