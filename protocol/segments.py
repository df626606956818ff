"""Blobs one after the other in numbered, append-only files: ``NAME-00001.bin``, then the next number.

A file that is full is sealed: on the disk, and read-only.  A place in it, once given, never changes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from protocol.filesystem import append_whole, sync

SEGMENT_BYTES = 64 * 1024 * 1024


class Place(NamedTuple):
    segment: str
    """File name."""
    offset: int


class SegmentWriter:
    """Appends to the segments ``NAME-*.bin`` of one folder; one writer at a time."""

    def __init__(self, folder: Path, name: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder, self._name, self._segment_bytes = folder, name, segment_bytes
        numbers = [int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{name}-*.bin") if is_segment(path.name)]
        self._number = max(numbers, default=1)

    def append(self, blob: bytes) -> Place:
        """Where ``blob`` is; the next segment begins with it where this one is full.  Raises OSError, and then nothing
        was appended."""
        segment = f"{self._name}-{self._number:05d}.bin"
        path = self._folder / segment
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(blob) > self._segment_bytes:
            sync(path)
            path.chmod(0o444)
            self._number += 1
            return self.append(blob)
        append_whole(path, blob)
        return Place(segment, size)


def is_segment(name: str) -> bool:
    """Whether this is a segment's file name: what an index says need not be one."""
    return _SEGMENT.fullmatch(name) is not None


def read_segment(folder: Path, place: Place, length: int) -> bytes:
    """Bytes of a segment, unchecked.  Raises OSError without such a file, ValueError where it does not reach so far or
    is no segment."""
    if not is_segment(place.segment):
        raise ValueError(f"{place.segment!r} is not a segment")
    with (folder / place.segment).open("rb") as file:
        if place.offset + length > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{place.segment} ends before byte {place.offset + length}")
        file.seek(place.offset)
        return file.read(length)


_SEGMENT = re.compile(r"[a-z]+-\d+\.bin")
