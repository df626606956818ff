"""The export of trajectories for readers (web, terminal UI, ``ctl``, DuckDB).

``trajectories/trajectories-00001.bin`` holds concatenated packed blobs (:mod:`protocol.codec`).  At 64 MiB the file is
sealed (synced to disk and read-only) and the next number begins.  ``trajectories/index.jsonl`` has one line per
trajectory, written after its blob.  Both are append-only.  The journal is authoritative and written first: a trajectory
that a crash left out of the export is added when the buffer restarts, and failures here are only counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import orjson

from protocol import codec
from protocol.errors import UserError
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.integers import Int64, UInt63
from protocol.run_directory.blob_files import BLOB_FILE_BYTES, BlobFileWriter, BlobLocation, read_blob_bytes
from protocol.run_directory.file_tail import decode_line, decode_lines, read_newest_lines
from protocol.trajectory import Trajectory

TRAJECTORIES_FOLDER = "trajectories"
EXPORT_INDEX = "index.jsonl"
_LINE_BEGINS, _LINE_ENDS = b'{"trajectory":', b"}\n"


@dataclass(frozen=True, slots=True)
class ExportIndexEntry:
    """One line of the index."""

    trajectory: str
    group: Int64
    sample: Int64
    task: str
    file: str
    """Name of the blob file beside the index."""
    offset: UInt63
    length: UInt63
    status: str
    reward: float
    attempt: UInt63 = 0
    passed: bool | None = None
    """See :attr:`Trajectory.passed`.  None if the line lacks this and the following fields."""
    tokens: UInt63 = 0
    sampled: UInt63 = 0
    """Number of sampled tokens in all segments."""
    at: float | None = None
    """Time of the export, which follows the acknowledgement; unix seconds."""


_TAIL_BYTES = 1 << 16
_ENTRY = msgspec.json.Decoder(ExportIndexEntry)


class UnreadableTrajectoryError(UserError):
    """The export does not hold a trajectory that its index lists."""

    def __init__(self, run_dir: Path, entry: ExportIndexEntry, reason: str) -> None:
        super().__init__(
            f"{run_dir}: the record of {entry.trajectory} in {entry.file} cannot be read: {reason}; leave it out, or "
            f"see `longshore journal check {run_dir}`"
        )


class TrajectoryExporter:
    """Appends to the export of one run directory; one writer at a time."""

    def __init__(self, run_dir: Path, file_bytes: int = BLOB_FILE_BYTES, now: Callable[[], float] = time.time) -> None:
        self._folder, self._now = run_dir / TRAJECTORIES_FOLDER, now
        self.failures = 0
        """Number of trajectories that could not be exported."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            cut_torn_line(self._folder / EXPORT_INDEX)
        except OSError:
            self.failures += 1
        self._files = BlobFileWriter(self._folder, "trajectories", file_bytes)

    def find_unexported(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that are not exported.  Lines are not parsed: after weeks there are millions."""
        left = {_LINE_BEGINS + orjson.dumps(name): name for name in names}
        with suppress(OSError), (self._folder / EXPORT_INDEX).open("rb") as file:
            for line in file:
                if line.endswith(_LINE_ENDS):
                    left.pop(line[: line.find(b",")], None)
        return list(left.values())

    def read_newest_id(self) -> str | None:
        """Return the trajectory that was exported last, or None if the end of the index is unreadable."""
        lines = read_newest_lines(self._folder / EXPORT_INDEX, _TAIL_BYTES)
        return next((entry.trajectory for line in lines if (entry := decode_line(_ENTRY, line))), None)

    def export_trajectory(self, summary: codec.TrajectorySummary, blob: bytes) -> None:
        """Export one trajectory.  Disk errors are counted, not raised."""
        request = summary.request
        try:
            location = self._files.append_blob(blob)
            entry = ExportIndexEntry(
                request.trajectory_id,
                request.group,
                request.sample,
                request.task,
                *location,
                len(blob),
                summary.status.value,
                summary.reward.total,
                request.attempt,
                summary.passed,
                summary.tokens,
                summary.sampled,
                round(self._now(), 3),
            )
            append_atomically(self._folder / EXPORT_INDEX, orjson.dumps(asdict(entry)) + b"\n")
        except OSError:
            self.failures += 1


def read_export_index(run_dir: Path) -> Iterator[ExportIndexEntry]:
    """Yield entries in the order of arrival; an incomplete last line and damaged lines are skipped."""
    return decode_lines(_ENTRY, run_dir / TRAJECTORIES_FOLDER / EXPORT_INDEX)


def read_exported_blob(run_dir: Path, entry: ExportIndexEntry) -> bytes:
    """Return the packed trajectory of ``entry``, unchecked.  Raises CodecError for an invalid name or location, OSError
    if there is no file."""
    try:
        return read_blob_bytes(run_dir / TRAJECTORIES_FOLDER, BlobLocation(entry.file, entry.offset), entry.length)
    except ValueError as error:
        raise codec.CodecError(f"{entry.trajectory} cannot be read: {error}") from error


def read_exported_trajectory(run_dir: Path, entry: ExportIndexEntry) -> Trajectory:
    """Return the trajectory of ``entry``.  Raises UnreadableTrajectoryError."""
    try:
        found = codec.unpack_trajectory(read_exported_blob(run_dir, entry))
    except (codec.CodecError, OSError) as error:
        raise UnreadableTrajectoryError(run_dir, entry, str(error)) from error
    if found.request.trajectory_id != entry.trajectory:
        raise UnreadableTrajectoryError(run_dir, entry, f"it is that of {found.request.trajectory_id}")
    return found
