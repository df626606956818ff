"""The allocator's arenas.  glibc gives each thread its own, up to eight for each processor, and each of them keeps what
its thread once took at a time."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX = -8
"""Parameter of mallopt(3)."""


def share_malloc_arena() -> None:
    """Let all threads that start later allocate from one arena.  An allocator without arenas is left as it is."""
    with suppress(AttributeError):  # mallopt is glibc's
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
