"""Keeps the archives that tests extract inside their folder. Standard library only: a copy runs in containers."""

from __future__ import annotations

import os
from pathlib import Path
from tarfile import LinkOutsideDestinationError, TarFile, TarInfo, data_filter


def keep_archives_inside() -> None:
    """Refuse what leads out of the folder that an archive is extracted to, for the rest of this process.

    An agent's archive could otherwise link an answer to what the tests expect, or replace files of the tests. A filter
    that the tests themselves give still takes precedence.
    """
    TarFile.extraction_filter = staticmethod(_stay_inside)


def _stay_inside(member: TarInfo, folder: str) -> TarInfo:
    """Return the member as Python 3.14's default does, and refuse what gets past older versions of that.

    These lose track of links whose full paths are too long for the system, and of links that others lead through. Here
    every link leads down from a folder above itself, and nothing is extracted through one.
    """
    kept = data_filter(member, folder)
    place = Path(kept.name)
    if any(Path(folder, above).is_symlink() for above in place.parents[:-1]):
        raise LinkOutsideDestinationError(kept, folder)
    if not kept.issym():
        return kept
    target = os.path.normpath(kept.linkname)
    led = os.path.normpath(place.parent / target)
    if led.split("/")[0] == "..":
        raise LinkOutsideDestinationError(kept, led)
    return kept.replace(linkname=target, deep=False)
