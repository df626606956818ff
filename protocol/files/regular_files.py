"""Reads files that others chose, such as a data set's: a pipe or a device might never end."""

from __future__ import annotations

import stat
from pathlib import Path

MAX_WHOLE_BYTES = 1 << 30
"""Maximum size of a file that is held in memory."""


def require_regular_file(path: Path, most_bytes: int | None = None) -> None:
    """Raise OSError, in words, unless ``path`` is a file, of at most ``most_bytes``."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is not a regular file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise OSError(f"it is larger than {most_bytes >> 20} MiB, and is held in memory")


def read_regular_file(path: Path, most_bytes: int = MAX_WHOLE_BYTES) -> bytes:
    """Return the content of a file of at most ``most_bytes``.  Raises OSError, in words."""
    require_regular_file(path, most_bytes)
    return path.read_bytes()
