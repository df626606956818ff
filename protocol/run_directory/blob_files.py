"""Blobs one after the other in numbered, append-only files: ``NAME-00001.bin``, then the next number.

A file that is full is sealed: on the disk, and read-only.  A place in it, once given, never changes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from protocol.files.filesystem import append_atomically, fsync_path

BLOB_FILE_BYTES = 64 * 1024 * 1024


class BlobLocation(NamedTuple):
    file_name: str
    """File name."""
    offset: int


class BlobFileWriter:
    """Appends to the segments ``NAME-*.bin`` of one folder; one writer at a time."""

    def __init__(self, folder: Path, name: str, segment_bytes: int = BLOB_FILE_BYTES) -> None:
        self._folder, self._name, self._segment_bytes = folder, name, segment_bytes
        numbers = [
            int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{name}-*.bin") if is_blob_file_name(path.name)
        ]
        self._number = max(numbers, default=1)

    def append_blob(self, blob: bytes) -> BlobLocation:
        """Where ``blob`` is; the next segment begins with it where this one is full.  Raises OSError, and then nothing
        was appended."""
        segment = f"{self._name}-{self._number:05d}.bin"
        path = self._folder / segment
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(blob) > self._segment_bytes:
            fsync_path(path)
            path.chmod(0o444)
            self._number += 1
            return self.append_blob(blob)
        append_atomically(path, blob)
        return BlobLocation(segment, size)


def is_blob_file_name(name: str) -> bool:
    """Whether this is a segment's file name: what an index says need not be one."""
    return _BLOB_FILE_NAME.fullmatch(name) is not None


def read_blob_bytes(folder: Path, location: BlobLocation, length: int) -> bytes:
    """Bytes of a segment, unchecked.  Raises OSError without such a file, ValueError where it does not reach so far or
    is no segment."""
    if not is_blob_file_name(location.file_name):
        raise ValueError(f"{location.file_name!r} is not a segment")
    with (folder / location.file_name).open("rb") as file:
        if location.offset + length > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{location.file_name} ends before byte {location.offset + length}")
        file.seek(location.offset)
        return file.read(length)


_BLOB_FILE_NAME = re.compile(r"[a-z]+-\d+\.bin")
