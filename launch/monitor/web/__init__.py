"""The HTTP server of the monitor.

``app`` wires it, ``watched_runs`` follows runs, ``api`` answers requests, ``event_streams`` streams events and
terminals, ``responses`` builds responses, and ``access`` controls who may read.
"""
