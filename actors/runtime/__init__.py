"""The seam to Ray: the only package that places, starts, calls and kills actors.

It knows no class that runs in an actor; the rest of actors/ and launch/ reach Ray through it.  Errors, placement groups
and the inspection of tasks are at the bottom, the typed handle :class:`~actors.runtime.remote.Remote` above them.
"""
