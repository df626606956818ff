"""The interface to Ray: the only package that places, starts, calls and kills actors.

It knows no actor class; the rest of actors/ and launch/ reach Ray through it.  Errors, placement groups
and the inspection of tasks are at the bottom, the typed handle :class:`~actors.runtime.remote.Remote` above them.
"""
