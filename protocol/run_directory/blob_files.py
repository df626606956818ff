"""Concatenated blobs in numbered, append-only files: ``NAME-00001.bin`` and so on.

A full file is sealed: synced to disk and made read-only.  The location of a blob never changes.
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
    """Name of the file in the folder."""
    offset: int


class BlobFileWriter:
    """Appends to the files ``NAME-*.bin`` of one folder; one writer at a time."""

    def __init__(self, folder: Path, name: str, file_bytes: int = BLOB_FILE_BYTES) -> None:
        self._folder, self._name, self._file_bytes = folder, name, file_bytes
        numbers = [
            int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{name}-*.bin") if is_blob_file_name(path.name)
        ]
        self._number = max(numbers, default=1)

    def append_blob(self, blob: bytes) -> BlobLocation:
        """Append ``blob`` and return where it is; if the newest file is full, the blob begins the next one.  Raises
        OSError, and then nothing was appended."""
        file_name = f"{self._name}-{self._number:05d}.bin"
        path = self._folder / file_name
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(blob) > self._file_bytes:
            fsync_path(path)
            path.chmod(0o444)
            self._number += 1
            return self.append_blob(blob)
        append_atomically(path, blob)
        return BlobLocation(file_name, size)


def is_blob_file_name(name: str) -> bool:
    """Return whether this is a valid name of a blob file: an index may be damaged."""
    return _BLOB_FILE_NAME.fullmatch(name) is not None


def read_blob_bytes(folder: Path, location: BlobLocation, length: int) -> bytes:
    """Return bytes of a blob file, unchecked.  Raises OSError if there is no such file, and ValueError if it is shorter
    or its name is invalid."""
    if not is_blob_file_name(location.file_name):
        raise ValueError(f"{location.file_name!r} is not the name of a blob file")
    with (folder / location.file_name).open("rb") as file:
        if location.offset + length > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{location.file_name} ends before byte {location.offset + length}")
        file.seek(location.offset)
        return file.read(length)


_BLOB_FILE_NAME = re.compile(r"[a-z]+-\d+\.bin")
