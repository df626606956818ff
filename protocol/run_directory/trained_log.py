"""What each optimizer step made of each trajectory, for people: nothing decides by it.

``trained/index.jsonl`` has one line a step, written by the driver once the step is marked in the journal; a line
``{"rewound_to": step}`` voids those of later steps before it.  ``trained/tokens-00001.bin`` and so on hold one blob for
each trained trajectory: what the learner made of each token.  All of it is only ever appended to.  Writing never
raises: a failure is counted, and harms nothing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntFlag
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import lz4.block  # pyright: ignore[reportMissingTypeStubs]  it has none
import msgspec
import numpy as np
import orjson
from msgspec import Meta

from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.run_directory.blob_files import BLOB_FILE_BYTES, BlobFileWriter, BlobLocation, read_blob_bytes
from protocol.trajectory import Float32Array, Uint8Array

TRAINED_FOLDER = "trained"
TRAINED_INDEX = "index.jsonl"
MAX_TRAINED_TOKENS = 1 << 26
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Whole: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_MAGIC = b"LST1"
_HEAD = struct.Struct("<4sI")
_TOKEN_BYTES = 9
_lz4: Any = lz4.block


class TokenLossFlag(IntFlag):
    """What held a token of a step back."""

    HIGH = 1
    """Its ratio was above the upper bound."""
    LOW = 2
    """Its ratio was below the lower bound."""
    DUAL = 4
    """The dual bound held."""
    CORRECTED = 8
    """A correction took its loss."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedTokens:
    """Of all tokens of a trajectory, its segments one after the other; [T] each."""

    logprobs: Float32Array
    """The learner's log π, by the weights that the token's update began with; NaN for a token without loss."""
    advantages: Float32Array
    """NaN for a token without loss."""
    loss_flags: Uint8Array
    """:class:`Mark`; 0 for a token without loss."""


@dataclass(frozen=True, slots=True)
class PackedTrainedTokens:
    """The facts of one trajectory, and their means over its tokens with loss."""

    blob: bytes
    """:func:`pack_facts`."""
    mean_advantage: float
    mean_logprob_gap: float
    """Of |log π − log μ|, μ the engine's."""


@dataclass(frozen=True, slots=True)
class TrainedTrajectoryEntry:
    trajectory: str
    reason: str = ""
    """Why it was dropped; empty for one that was trained."""
    advantage: float | None = None
    logprob_gap: float | None = None
    file: str = ""
    """File beside the index; empty where there are no facts of its tokens."""
    offset: _Count = 0
    length: _Count = 0


@dataclass(frozen=True, slots=True)
class TrainedStepEntry:
    """One line of the index."""

    step: _Count | None
    """None: the batch made no step, and all of it is dropped for good."""
    t: float
    version: _Whole
    """Of the weights that it updated: ages are counted up to them."""
    trajectories: list[TrainedTrajectoryEntry]


@dataclass(frozen=True, slots=True)
class RewindEntry:
    """One line of the index: what later steps did, as far as they stand before it, was taken back."""

    rewound_to: int
    t: float


def pack_trained_tokens(facts: TrainedTokens) -> bytes:
    """Magic, number of tokens, then the columns as one LZ4 block."""
    columns = (facts.logprobs.astype("<f4"), facts.advantages.astype("<f4"), facts.loss_flags.astype(np.uint8))
    body: bytes = _lz4.compress(b"".join(column.tobytes() for column in columns), store_size=False)
    return _HEAD.pack(_MAGIC, len(facts.loss_flags)) + body


def unpack_trained_tokens(blob: bytes) -> TrainedTokens:
    """Raises ValueError, and nothing else, for what :func:`pack_facts` did not write."""
    if len(blob) < _HEAD.size:
        raise ValueError("too short for the facts of tokens")
    magic, count = cast("tuple[bytes, int]", _HEAD.unpack_from(blob))
    if magic != _MAGIC or count > MAX_TRAINED_TOKENS:
        raise ValueError("these are no facts of tokens")
    try:
        body: bytes = _lz4.decompress(blob[_HEAD.size :], uncompressed_size=count * _TOKEN_BYTES)
    except _lz4.LZ4BlockError as error:
        raise ValueError(f"facts of tokens cannot be read: {error}") from error
    if len(body) != count * _TOKEN_BYTES:
        raise ValueError("facts of tokens end too early")
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
        """Lines that could not be written."""
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
        """A step used ``trained`` and ``dropped`` (trajectory → reason); ``records`` are of some of the former."""
        try:
            entries = [
                *self._written(trained, records),
                *(TrainedTrajectoryEntry(name, reason) for name, reason in dropped.items()),
            ]
            self._append(TrainedStepEntry(step, round(self._now(), 3), version, entries))
        except OSError:
            self.failures += 1

    def record_rewind(self, step: int) -> None:
        """Later steps are taken back."""
        try:
            self._append(RewindEntry(step, round(self._now(), 3)))
        except OSError:
            self.failures += 1

    def _written(
        self, trained: Sequence[str], records: Mapping[str, PackedTrainedTokens]
    ) -> list[TrainedTrajectoryEntry]:
        """The entries of ``trained``, once the facts of their tokens are on the disk: all of a step in one write."""
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
    """One line of the index; None for a damaged one."""
    try:
        return _REWOUND.decode(line) if line.startswith(b'{"rewound_to"') else _STEP.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_trained_tokens(run_dir: Path, entry: TrainedTrajectoryEntry) -> TrainedTokens | None:
    """None where there are none.  Raises ValueError or OSError where they cannot be read."""
    if not entry.file:
        return None
    return unpack_trained_tokens(
        read_blob_bytes(run_dir / TRAINED_FOLDER, BlobLocation(entry.file, entry.offset), entry.length)
    )


def _rounded(value: float) -> float | None:
    """As far as a person reads it, which JSON can hold."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
