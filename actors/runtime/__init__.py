"""The interface to Ray's actors: the only package that places, starts, calls and kills them.

It knows no actor class.  :mod:`launch.hosts` starts, joins and reads Ray's cluster.  Errors, placement groups
and the inspection of tasks are at the bottom, the typed handle :class:`~actors.runtime.remote.Remote` above them.
"""
