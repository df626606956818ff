"""What lives, as the kernel tells it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def process_group(leader: int) -> set[int]:
    """Pids of the live processes of a group."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(entry.name)) == leader:
                found.add(int(entry.name))
    return found
