"""Record of how each optimizer step used each trajectory, for people; no decision depends on it.

``trained/index.jsonl`` has one line per step, written by the driver after the step is marked in the journal; a line
``{"rewound_to": step}`` voids the earlier lines of later steps.  ``trained/tokens-00001.bin`` and so on hold one blob
per trained trajectory with the learner's values for each token.  The files are append-only.  Writing never raises:
failures are counted.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntFlag
from pathlib import Path
from typing import Any, cast

import lz4.block  # pyright: ignore[reportMissingTypeStubs]  it has none
import msgspec
import numpy as np
import orjson

from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.integers import Int64, UInt63
from protocol.run_directory.blob_files import BLOB_FILE_BYTES, BlobFileWriter, BlobLocation, read_blob_bytes
from protocol.run_directory.file_tail import decode_line
from protocol.trajectory import Float32Array, Uint8Array

TRAINED_FOLDER = "trained"
TRAINED_INDEX = "index.jsonl"
MAX_TRAINED_TOKENS = 1 << 26
_MAGIC = b"LST1"
_HEAD = struct.Struct("<4sI")
_TOKEN_BYTES = 9
_lz4: Any = lz4.block


class TokenLossFlag(IntFlag):
    """Reasons why the loss of a token was limited."""

    HIGH = 1
    """The ratio was above the upper clip bound."""
    LOW = 2
    """The ratio was below the lower clip bound."""
    DUAL = 4
    """The dual clip bound applied."""
    CORRECTED = 8
    """An importance correction removed the loss."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedTokens:
    """The learner's values for all T tokens of a trajectory, segments concatenated."""

    logprobs: Float32Array
    """Learner log π [T] under the weights at the start of the token's update; NaN for tokens without loss."""
    advantages: Float32Array
    """Advantages [T]; NaN for tokens without loss."""
    loss_flags: Uint8Array
    """:class:`TokenLossFlag` values [T]; 0 for tokens without loss."""


@dataclass(frozen=True, slots=True)
class PackedTrainedTokens:
    """Packed values of one trajectory, and their means over its tokens with loss."""

    blob: bytes
    """Result of :func:`pack_trained_tokens`."""
    mean_advantage: float
    mean_logprob_gap: float
    """Mean of |log π − log μ|, where μ is the engine's policy."""


@dataclass(frozen=True, slots=True)
class TrainedTrajectoryEntry:
    trajectory: str
    reason: str = ""
    """Reason why it was dropped; empty if it was trained."""
    advantage: float | None = None
    logprob_gap: float | None = None
    file: str = ""
    """Name of the token file beside the index; empty if there are no token values."""
    offset: UInt63 = 0
    length: UInt63 = 0


@dataclass(frozen=True, slots=True)
class TrainedStepEntry:
    """One line of the index: a step."""

    step: UInt63 | None
    """None if the batch made no step and all of it is dropped for good."""
    t: float
    version: Int64
    """Version of the weights that the step updated, to which its tokens' staleness refers."""
    trajectories: list[TrainedTrajectoryEntry]


@dataclass(frozen=True, slots=True)
class RewindEntry:
    """One line of the index: earlier lines of later steps are void."""

    rewound_to: int
    t: float


def pack_trained_tokens(values: TrainedTokens) -> bytes:
    """Return a blob: magic, number of tokens, then the columns as one LZ4 block."""
    columns = (values.logprobs.astype("<f4"), values.advantages.astype("<f4"), values.loss_flags.astype(np.uint8))
    body: bytes = _lz4.compress(b"".join(column.tobytes() for column in columns), store_size=False)
    return _HEAD.pack(_MAGIC, len(values.loss_flags)) + body


def unpack_trained_tokens(blob: bytes) -> TrainedTokens:
    """Parse a blob.  Raises ValueError, and nothing else, for bytes that :func:`pack_trained_tokens` did not write."""
    if len(blob) < _HEAD.size:
        raise ValueError("the blob is too short for token values")
    magic, count = cast("tuple[bytes, int]", _HEAD.unpack_from(blob))
    if magic != _MAGIC or count > MAX_TRAINED_TOKENS:
        raise ValueError("the blob does not hold token values")
    try:
        body: bytes = _lz4.decompress(blob[_HEAD.size :], uncompressed_size=count * _TOKEN_BYTES)
    except _lz4.LZ4BlockError as error:
        raise ValueError(f"token values cannot be read: {error}") from error
    if len(body) != count * _TOKEN_BYTES:
        raise ValueError("the blob of token values is truncated")
    return TrainedTokens(
        np.frombuffer(body, "<f4", count),
        np.frombuffer(body, "<f4", count, 4 * count),
        np.frombuffer(body, np.uint8, count, 8 * count),
    )


class TrainedLog:
    """Appends to ``trained/`` of one run directory; one writer at a time."""

    def __init__(self, run_dir: Path, file_bytes: int = BLOB_FILE_BYTES, now: Callable[[], float] = time.time) -> None:
        self._folder, self._now = run_dir / TRAINED_FOLDER, now
        self.failures = 0
        """Number of lines that could not be written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            cut_torn_line(self._folder / TRAINED_INDEX)
        except OSError:
            self.failures += 1
        self._files = BlobFileWriter(self._folder, "tokens", file_bytes)

    def record_step(
        self,
        step: int | None,
        version: int,
        trained: Sequence[str],
        dropped: Mapping[str, str],
        records: Mapping[str, PackedTrainedTokens],
    ) -> None:
        """Record that a step used ``trained`` and ``dropped`` (trajectory → reason); ``records`` has token values of
        some of ``trained``."""
        try:
            entries = [
                *self._written(trained, records),
                *(TrainedTrajectoryEntry(name, reason) for name, reason in dropped.items()),
            ]
            self._append(TrainedStepEntry(step, round(self._now(), 3), version, entries))
        except OSError:
            self.failures += 1

    def record_rewind(self, step: int) -> None:
        """Record that the run continues from ``step`` and later steps are void."""
        try:
            self._append(RewindEntry(step, round(self._now(), 3)))
        except OSError:
            self.failures += 1

    def _written(
        self, trained: Sequence[str], records: Mapping[str, PackedTrainedTokens]
    ) -> list[TrainedTrajectoryEntry]:
        """Append the token values of a step in one write and return the entries of ``trained``."""
        known = [(name, records[name]) for name in trained if name in records]
        if not known:
            return [TrainedTrajectoryEntry(name) for name in trained]
        file_name, offset = self._files.append_blob(b"".join(record.blob for _, record in known))
        entries = dict.fromkeys(trained, TrainedTrajectoryEntry(""))
        for name, record in known:
            advantage, gap = _rounded(record.mean_advantage), _rounded(record.mean_logprob_gap)
            entries[name] = TrainedTrajectoryEntry(name, "", advantage, gap, file_name, offset, len(record.blob))
            offset += len(record.blob)
        return [entry if entry.trajectory else TrainedTrajectoryEntry(name) for name, entry in entries.items()]

    def _append(self, line: TrainedStepEntry | RewindEntry) -> None:
        append_atomically(self._folder / TRAINED_INDEX, orjson.dumps(asdict(line)) + b"\n")


_STEP, _REWOUND = msgspec.json.Decoder(TrainedStepEntry), msgspec.json.Decoder(RewindEntry)


def parse_trained_line(line: bytes) -> TrainedStepEntry | RewindEntry | None:
    """Parse one line of the index; return None for a damaged one."""
    return decode_line(_REWOUND, line) if line.startswith(b'{"rewound_to"') else decode_line(_STEP, line)


def read_trained_tokens(run_dir: Path, entry: TrainedTrajectoryEntry) -> TrainedTokens | None:
    """Return a trajectory's token values, or None if there are none.  Raises ValueError or OSError if unreadable."""
    if not entry.file:
        return None
    return unpack_trained_tokens(
        read_blob_bytes(run_dir / TRAINED_FOLDER, BlobLocation(entry.file, entry.offset), entry.length)
    )


def _rounded(value: float) -> float | None:
    """Round to six digits; None for a value that JSON cannot hold."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
