"""Syncs growing files from a folder on another machine to the same files of the run's directory.

Files grow, and a recording may be restarted.  The other machine lists what has changed (:func:`list_changed_files`) and
returns pieces (:func:`read_pieces`); it is stateless, so that it may be restarted at any time.  The driver's side
(:class:`FileSync`) knows how much of each file it has and requests the rest.  No part of a run waits for this,
because only people read the files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from protocol.activity import ACTIVITY_FOLDER
from protocol.errors import InfraError
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.run_directory.layout import STARTS_FOLDER
from protocol.run_directory.page_pictures import PICTURES_FOLDER

SYNCED_FOLDERS = ("events", "terminals", PICTURES_FOLDER, STARTS_FOLDER, ACTIVITY_FOLDER)
"""Folders of a run that actors write into."""
REMOVED = -1
PIECE_BYTES = 256 << 10
BATCH_BYTES = 4 << 20
"""Bytes that are requested together."""
_RECORDINGS, _LINES = ("terminals", PICTURES_FOLDER), ".jsonl"
_OVERLAP_S = 5.0
"""Files that changed this shortly before the last listing are listed again: clocks of file systems are coarse."""


class ForeignPathError(InfraError):
    """Another machine named a file that actors do not write."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    path: str
    """Path relative to the folder."""
    bytes: int
    """Size, or ``REMOVED``."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    listed_at: float
    """Time of the listing by the other machine's clock."""
    files: tuple[ChangedFile, ...]


@dataclass(frozen=True, slots=True)
class PieceRequest:
    path: str
    offset: int
    bytes: int


def list_changed_files(root: Path, since: float, *, settled_s: float, now: float | None = None) -> ChangedFiles:
    """Return the files below ``root`` that were written to after ``since``.  Recordings that were not written to for
    ``settled_s`` are removed: by then they have been copied.  What is a link, or no file, is left out."""
    listed_at = time.time() if now is None else now
    found: list[ChangedFile] = []
    for part in SYNCED_FOLDERS:
        if (root / part).is_symlink():
            continue
        for folder, _, names in os.walk(root / part):
            for name in names:
                path = Path(folder) / name
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    if status.st_mtime >= since - _OVERLAP_S:
                        found.append(ChangedFile(path.relative_to(root).as_posix(), status.st_size))
                    elif part in _RECORDINGS and status.st_mtime < listed_at - settled_s:
                        path.unlink()
                        found.append(ChangedFile(path.relative_to(root).as_posix(), REMOVED))
    return ChangedFiles(listed_at, tuple(found))


def read_pieces(root: Path, requests: Sequence[PieceRequest]) -> list[bytes]:
    """Return one piece for each request; empty for what is missing, behind a link, or no file."""
    return [_read(root, request) for request in requests]


def _read(root: Path, request: PieceRequest) -> bytes:
    try:
        fd = _open_below(root, PurePosixPath(_checked(request.path)))
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return b""
        raise
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        file.seek(request.offset)
        return file.read(min(request.bytes, PIECE_BYTES))


def _open_below(root: Path, path: PurePosixPath) -> int:
    """Open ``path`` below ``root`` for reading, through no link and without waiting for a pipe's other end.  Raises
    OSError."""
    with contextlib.ExitStack() as opened:
        folder = None
        for each in (root, *path.parts[:-1]):
            folder = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
        return os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] not in SYNCED_FOLDERS or ".." in parts:
        raise ForeignPathError(f"{path!r} is not a file that actors write")
    return path


@dataclass(slots=True)
class FileSync:
    """Copies the files of one other machine to ``target``."""

    target: Path
    last_listed_at: float = 0.0
    """Time of the last listing by the other machine's clock."""
    _copied_bytes: dict[str, int] = field(default_factory=dict[str, int])
    _remote_bytes: dict[str, int] = field(default_factory=dict[str, int])
    """File → its size there, of each file that is not complete here."""

    def record_changes(self, changes: ChangedFiles) -> None:
        self.last_listed_at = changes.listed_at
        for file in changes.files:
            copied = self._copied_bytes.get(_checked(file.path), 0)
            if file.bytes < copied and not file.path.endswith(_LINES):  # removed or restarted
                copied = 0
                self._copied_bytes.pop(file.path, None)
            if file.bytes > copied:
                self._remote_bytes[file.path] = file.bytes

    @property
    def behind_bytes(self) -> int:
        return sum(size - self._copied_bytes.get(path, 0) for path, size in self._remote_bytes.items())

    def next_requests(self) -> tuple[PieceRequest, ...]:
        """Return the next requests, those with the fewest missing bytes first, so that no long file delays a short one.
        A piece is never cut to fit the batch: one without a whole line counts as the end of the file."""
        missing = sorted((size - self._copied_bytes.get(path, 0), path) for path, size in self._remote_bytes.items())
        requests: list[PieceRequest] = []
        room = BATCH_BYTES
        for missing_bytes, path in missing:
            if room <= 0:
                break
            requests.append(PieceRequest(path, self._copied_bytes.get(path, 0), min(missing_bytes, PIECE_BYTES)))
            room -= requests[-1].bytes
        return tuple(requests)

    def append_pieces(self, requests: Sequence[PieceRequest], pieces: Sequence[bytes]) -> None:
        """Append the pieces.  Raises OSError if there is no space; unwritten pieces are requested again."""
        for request, piece in zip(requests, pieces, strict=True):
            whole = _whole_lines(piece) if request.path.endswith(_LINES) else piece
            if whole:
                self._append(request.path, whole)
                self._copied_bytes[request.path] = request.offset + len(whole)
            if not whole or self._copied_bytes[request.path] >= self._remote_bytes[request.path]:
                del self._remote_bytes[request.path]

    def _append(self, path: str, piece: bytes) -> None:
        target = self.target / _checked(path)
        if path not in self._copied_bytes:
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.endswith(_LINES):
                cut_torn_line(target)
            else:
                target.unlink(missing_ok=True)  # of an earlier attempt at the same rollout request
        append_atomically(target, piece)


def _whole_lines(piece: bytes) -> bytes:
    """Return the piece without a torn last line, which a process that dies may leave and its successor removes."""
    return piece if len(piece) >= PIECE_BYTES and b"\n" not in piece else piece[: piece.rfind(b"\n") + 1]
