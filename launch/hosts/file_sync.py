"""What grows in a folder on another machine, appended to the same files of the run's directory.

Files grow, and a recording may be begun anew.  The other machine says which have changed (:func:`changed`) and gives
pieces (:func:`read`); it keeps nothing in mind, so that it may be restarted at any time.  The driver's side
(:class:`Mirror`) knows how far it has each and asks for what stands behind that.  Nothing of a run waits for it: what
it carries is for people.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from protocol.activity import ACTIVITY_FOLDER as LANES
from protocol.errors import InfraError
from protocol.files.filesystem import append_atomically, cut_torn_line

SYNCED_FOLDERS = ("events", "terminals", "attempts", LANES)
"""Folders of a run that actors write into."""
REMOVED = -1
PIECE_BYTES = 256 << 10
_LOOK_BYTES = 4 << 20
"""Asked for at once."""
_RECORDINGS, _LINES = "terminals", ".jsonl"
_OVERLAP_S = 5.0
"""Files that changed so shortly before the last look are looked at again: clocks of file systems are coarse."""


class ForeignPathError(InfraError):
    """Another machine named a file that is none of those that actors write."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    path: str
    """Below the folder."""
    bytes: int
    """Or ``REMOVED``."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    listed_at: float
    """The other machine's clock when it began to look."""
    files: tuple[ChangedFile, ...]


@dataclass(frozen=True, slots=True)
class PieceRequest:
    path: str
    offset: int
    bytes: int


def list_changed_files(root: Path, since: float, *, settled_s: float, now: float | None = None) -> ChangedFiles:
    """Files below ``root`` that were written to after ``since``.  Recordings that nobody wrote to for ``settled_s`` are
    removed: by then they have been taken."""
    at = time.time() if now is None else now
    found: list[ChangedFile] = []
    for part in SYNCED_FOLDERS:
        for folder, _, names in os.walk(root / part):
            for name in names:
                path = Path(folder) / name
                with contextlib.suppress(FileNotFoundError):
                    stat = path.stat()
                    if stat.st_mtime >= since - _OVERLAP_S:
                        found.append(ChangedFile(path.relative_to(root).as_posix(), stat.st_size))
                    elif part == _RECORDINGS and stat.st_mtime < at - settled_s:
                        path.unlink()
                        found.append(ChangedFile(path.relative_to(root).as_posix(), REMOVED))
    return ChangedFiles(at, tuple(found))


def read_pieces(root: Path, wants: Sequence[PieceRequest]) -> list[bytes]:
    """One piece for each; empty for a file that is gone."""
    return [_read(root, want) for want in wants]


def _read(root: Path, want: PieceRequest) -> bytes:
    try:
        with (root / _checked(want.path)).open("rb") as file:
            file.seek(want.offset)
            return file.read(min(want.bytes, PIECE_BYTES))
    except FileNotFoundError:
        return b""


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] not in SYNCED_FOLDERS or ".." in parts:
        raise ForeignPathError(f"{path!r} is none of the files that actors write")
    return path


@dataclass(slots=True)
class FileSync:
    """One other machine's files, in ``into``."""

    target: Path
    last_listed_at: float = 0.0
    """The other machine's clock at the last look."""
    _copied_bytes: dict[str, int] = field(default_factory=dict[str, int])
    _remote_bytes: dict[str, int] = field(default_factory=dict[str, int])
    """File → its size there, of which less is here."""

    def record_changes(self, looked: ChangedFiles) -> None:
        self.last_listed_at = looked.listed_at
        for file in looked.files:
            taken = self._copied_bytes.get(_checked(file.path), 0)
            if file.bytes < taken and not file.path.endswith(_LINES):  # removed, or begun anew
                taken = 0
                self._copied_bytes.pop(file.path, None)
            if file.bytes > taken:
                self._remote_bytes[file.path] = file.bytes

    @property
    def behind_bytes(self) -> int:
        return sum(size - self._copied_bytes.get(path, 0) for path, size in self._remote_bytes.items())

    def next_requests(self) -> tuple[PieceRequest, ...]:
        """What to ask for next: what lacks least comes first, so that no long file keeps a short one waiting.  A piece
        is never cut off for want of room: of one with no whole line there is no more to come."""
        lacking = sorted((size - self._copied_bytes.get(path, 0), path) for path, size in self._remote_bytes.items())
        wants: list[PieceRequest] = []
        room = _LOOK_BYTES
        for lacks, path in lacking:
            if room <= 0:
                break
            wants.append(PieceRequest(path, self._copied_bytes.get(path, 0), min(lacks, PIECE_BYTES)))
            room -= wants[-1].bytes
        return tuple(wants)

    def append_pieces(self, wants: Sequence[PieceRequest], pieces: Sequence[bytes]) -> None:
        """Append the pieces.  Raises OSError where there is no space; what was not written is asked for again."""
        for want, piece in zip(wants, pieces, strict=True):
            whole = _whole_lines(piece) if want.path.endswith(_LINES) else piece
            if whole:
                self._append(want.path, whole)
                self._copied_bytes[want.path] = want.offset + len(whole)
            if not whole or self._copied_bytes[want.path] >= self._remote_bytes[want.path]:
                del self._remote_bytes[want.path]

    def _append(self, path: str, piece: bytes) -> None:
        target = self.target / _checked(path)
        if path not in self._copied_bytes:
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.endswith(_LINES):
                cut_torn_line(target)
            else:
                target.unlink(missing_ok=True)  # of an earlier attempt at the same ticket
        append_atomically(target, piece)


def _whole_lines(piece: bytes) -> bytes:
    """Without the beginning of a line, which a process that dies may leave, and its successor removes."""
    return piece if len(piece) >= PIECE_BYTES and b"\n" not in piece else piece[: piece.rfind(b"\n") + 1]
