"""The files of a run's directory: their names, their writers, and the readers that follow them while they grow.

Its layout, the followers of its files and their writers.  Nothing here imports a package outside protocol.
"""
