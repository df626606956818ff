"""Pictures of the pages that an agent's browser showed: one file per episode beside its terminal recording.

``pictures/NAME.jpegs`` is append-only: a line of JSON, ``{"turn", "bytes"}``, and then so many bytes of a JPEG, for
each picture.  Pictures are for people.  They come from a sandbox, so that only what is a JPEG of a modest size is
written, and served.  An episode has at most :data:`MAX_EPISODE_BYTES`; what is beyond is counted.  A folder is kept
below a budget: for a new episode the files that were written to the longest time ago are removed.  The writer never
raises into the episode.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from protocol.run_directory.json_fields import parse_json_object

PICTURES_FOLDER = "pictures"
PICTURE_BYTES = 64 << 10
"""Maximum size of one picture."""
MAX_EPISODE_BYTES = 4 << 20
"""Maximum size of an episode's file."""
OPENING = -1
MAX_SIDE = 4096
"""Maximum width and height, pixels."""
_HEADER_BYTES = 200
_START, _END = b"\xff\xd8", b"\xff\xd9"
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a frame, which has the size."""


class PagePicture(NamedTuple):
    turn: int
    """Number of the model's turn, from 0; :data:`OPENING` for what the browser showed before the first."""
    offset: int
    """Position at which the JPEG begins in the file, in bytes."""
    bytes: int


def is_picture(data: bytes) -> bool:
    """Return whether this is a whole JPEG of at most :data:`PICTURE_BYTES` and :data:`MAX_SIDE` pixels."""
    if not (len(data) <= PICTURE_BYTES and data.startswith(_START) and data.endswith(_END)):
        return False
    at = len(_START)
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return 0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE
        at += 2 if marker in _WITHOUT_LENGTH else 2 + int.from_bytes(data[at + 2 : at + 4])
    return False


def pictures_path(run_dir: Path, episode: str) -> Path:
    """Return the file of an episode's pictures."""
    return run_dir / PICTURES_FOLDER / f"{episode}.jpegs"


@dataclass(slots=True)
class PictureWriter:
    """Appends one episode's pictures; the file is made with the first of them, in place of an earlier attempt's."""

    path: Path
    budget_bytes: int
    """Maximum size of the folder; 0 for no pictures at all."""
    removed: int = 0
    """Number of other episodes whose pictures were removed to keep the budget."""
    refused: int = 0
    """Number of pictures that are no JPEG of a modest size, did not fit, or could not be written."""
    _bytes: int = 0

    def record(self, turn: int, picture: bytes) -> None:
        """Append a picture of what the browser shows after a turn's action."""
        if not self.budget_bytes:
            return
        record = orjson.dumps({"turn": turn, "bytes": len(picture)}) + b"\n" + picture
        most = min(MAX_EPISODE_BYTES, self.budget_bytes)
        if not is_picture(picture) or self._bytes + len(record) > most:
            self.refused += 1
            return
        try:
            if not self._bytes:
                self._begin(most)
            with self.path.open("ab") as file:
                file.write(record)
        except OSError:
            self.refused += 1
            return
        self._bytes += len(record)

    def _begin(self, most: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self.removed = remove_oldest(self.path.parent, self.budget_bytes - most)


def remove_oldest(folder: Path, keep_bytes: int) -> int:
    """Remove the files that were written to the longest time ago until the rest has ``keep_bytes``; return how many."""
    found: list[tuple[float, int, str]] = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process keeps the same budget
            stat = entry.stat()
            found.append((stat.st_mtime, stat.st_size, entry.path))
    total, removed = sum(size for _, size, _ in found), 0
    for _, size, path in sorted(found):
        if total <= keep_bytes:
            break
        Path(path).unlink(missing_ok=True)
        total, removed = total - size, removed + 1
    return removed


def list_pictures(path: Path) -> list[PagePicture]:
    """Return the complete pictures of a file that may still grow; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return list(_pictures(file, path.stat().st_size))
    except OSError:
        return []


def _pictures(file: BinaryIO, size: int) -> Iterator[PagePicture]:
    while line := file.readline(_HEADER_BYTES):
        header, offset = parse_json_object(line) or {}, file.tell()
        turn, length = header.get("turn"), header.get("bytes")
        if not (isinstance(turn, int) and isinstance(length, int) and 0 < length <= PICTURE_BYTES):
            return
        if offset + length > size:
            return
        yield PagePicture(turn, offset, length)
        file.seek(offset + length)


def read_picture(path: Path, number: int) -> bytes | None:
    """Return the picture of this number, from 0; None if there is none, or what is there is no picture."""
    found = list_pictures(path)
    if not 0 <= number < len(found):
        return None
    try:
        with path.open("rb") as file:
            file.seek(found[number].offset)
            data = file.read(found[number].bytes)
    except OSError:
        return None
    return data if is_picture(data) else None
