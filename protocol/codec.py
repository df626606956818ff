"""Bytes ↔ Trajectory.

A trajectory is five frames: a header (magic, schema, blake2b of everything, then JSON) and four raw little-endian
arrays, each the concatenation over the segments: token ids (int32), loss mask (uint8), behaviour log-probabilities
(float32) and versions (int64).  Nothing is unpickled.  :func:`decode` checks sizes, schema, checksum, types and the
invariants of :class:`protocol.trajectory.Segment` before it allocates an array, so what it returns can be trusted;
:func:`encode` refuses what :func:`decode` would refuse, so a mistake shows where it was made.

:func:`pack` makes one blob of the frames: the journal, the sealed export and the learner's payload hold that.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import orjson

from protocol.errors import LongshoreError
from protocol.trajectory import (
    Float32Array,
    GroupId,
    Int32Array,
    Reward,
    Segment,
    Status,
    TestResult,
    Ticket,
    Trajectory,
    Turn,
    TurnKind,
    Uint8Array,
)

Frame: TypeAlias = bytes | memoryview

SCHEMA = 1
MAX_TRAJECTORY_BYTES = 256 * 1024 * 1024
"""Default bound of :func:`loads`; a run's own bound is smaller and comes from its config."""

_MAGIC = b"LSTJ"
_PREFIX = struct.Struct("<4sHH16s")
_LENGTH = struct.Struct("<Q")
_COUNT = struct.Struct("<4sI")
_PACK_MAGIC = b"LSPK"
_DTYPES: tuple[np.dtype[np.generic], ...] = (np.dtype("<i4"), np.dtype("u1"), np.dtype("<f4"), np.dtype("<i8"))
_FRAMES = 1 + len(_DTYPES)
_INT64 = 1 << 63


class CodecError(LongshoreError):
    """These bytes are not a trajectory, or this trajectory breaks an invariant."""


def encode(trajectory: Trajectory) -> list[bytes]:
    """Frames of ``trajectory``.  Raises CodecError if a segment has a wrong dtype, length or value."""
    for index, segment in enumerate(trajectory.segments):
        _check_dtypes(index, segment)
    try:
        header = orjson.dumps(_header(trajectory), option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise CodecError(f"trajectory {trajectory.ticket.trajectory_id} cannot be written as JSON: {error}") from error
    columns = [
        [segment.token_ids for segment in trajectory.segments],
        [segment.loss_mask for segment in trajectory.segments],
        [segment.logprobs for segment in trajectory.segments],
        [segment.versions for segment in trajectory.segments],
    ]
    frames = [
        np.concatenate(column).astype(dtype, copy=False).tobytes() if column else b""
        for column, dtype in zip(columns, _DTYPES, strict=True)
    ]
    _build(header, frames)
    return [_PREFIX.pack(_MAGIC, SCHEMA, 0, _checksum(header, frames)) + header, *frames]


def decode(frames: Sequence[Frame], *, max_bytes: int) -> Trajectory:
    """The trajectory in ``frames``, whose total size may be at most ``max_bytes``.  Its arrays own their memory.

    Raises CodecError, and nothing else, whatever the bytes are.
    """
    total = sum(memoryview(frame).nbytes for frame in frames)
    if total > max_bytes:
        raise CodecError(f"trajectory of {total} bytes is above the limit of {max_bytes}")
    if len(frames) != _FRAMES:
        raise CodecError(f"{len(frames)} frames instead of {_FRAMES}")
    expected = digest(frames)
    header = memoryview(frames[0])[_PREFIX.size :]
    if _checksum(header, frames[1:]) != expected:
        raise CodecError("checksum does not match")
    return _build(header, frames[1:])


def digest(frames: Sequence[Frame]) -> bytes:
    """The checksum that the header carries: equal for equal trajectories.  Raises CodecError for another format."""
    if not frames or len(frames[0]) < _PREFIX.size:
        raise CodecError("header is too short")
    magic, schema, reserved, checksum = cast("tuple[bytes, int, int, bytes]", _PREFIX.unpack_from(frames[0]))
    if magic != _MAGIC or reserved != 0:
        raise CodecError("not a trajectory")
    if schema != SCHEMA:
        raise CodecError(
            f"trajectory schema {schema}; this longshore reads {SCHEMA}: run the same version on all nodes"
        )
    return checksum


def payload_size(frames: Sequence[Frame]) -> int:
    """Bytes that ``frames`` take: what credit, reservations and budgets count."""
    return sum(memoryview(frame).nbytes for frame in frames)


def pack(frames: Sequence[Frame]) -> bytes:
    """One blob: magic, count, lengths, then the frames."""
    lengths = [_LENGTH.pack(memoryview(frame).nbytes) for frame in frames]
    return b"".join([_COUNT.pack(_PACK_MAGIC, len(frames)), *lengths, *frames])


def unpack(blob: Frame) -> list[memoryview]:
    """The frames of ``blob``, as views of it.  Raises CodecError."""
    view = memoryview(blob)
    if view.nbytes < _COUNT.size:
        raise CodecError("packed blob is too short")
    magic, count = cast("tuple[bytes, int]", _COUNT.unpack_from(view))
    start = _COUNT.size + count * _LENGTH.size
    if magic != _PACK_MAGIC or count != _FRAMES or view.nbytes < start:
        raise CodecError("not a packed trajectory")
    frames: list[memoryview] = []
    for index in range(count):
        (length,) = cast("tuple[int]", _LENGTH.unpack_from(view, _COUNT.size + index * _LENGTH.size))
        if length > view.nbytes - start:
            raise CodecError("packed blob is truncated")
        frames.append(view[start : start + length])
        start += length
    if start != view.nbytes:
        raise CodecError(f"packed blob has {view.nbytes - start} bytes too many")
    return frames


def dumps(trajectory: Trajectory) -> bytes:
    """``pack(encode(trajectory))``."""
    return pack(encode(trajectory))


def loads(blob: Frame, *, max_bytes: int = MAX_TRAJECTORY_BYTES) -> Trajectory:
    """``decode(unpack(blob))``."""
    return decode(unpack(blob), max_bytes=max_bytes)


def _checksum(header: Frame, arrays: Sequence[Frame]) -> bytes:
    state = hashlib.blake2b(_MAGIC + bytes([SCHEMA]), digest_size=16)
    for frame in (header, *arrays):
        state.update(_LENGTH.pack(memoryview(frame).nbytes))
        state.update(frame)
    return state.digest()


def _check_dtypes(index: int, segment: Segment) -> None:
    arrays = (segment.token_ids, segment.loss_mask, segment.logprobs, segment.versions)
    names = ("token_ids", "loss_mask", "logprobs", "versions")
    for name, array, dtype in zip(names, arrays, _DTYPES, strict=True):
        if array.dtype != dtype or array.shape != (len(segment),):
            raise CodecError(
                f"segment {index}: {name} is {array.dtype}{list(array.shape)}, expected {dtype.name}[{len(segment)}]"
            )


def _header(trajectory: Trajectory) -> dict[str, object]:
    """Everything but the arrays; orjson writes the dataclasses in it as objects."""
    return {
        "ticket": trajectory.ticket,
        "status": trajectory.status,
        "reward": trajectory.reward,
        "segments": [
            {"length": len(segment), "turns": segment.turns, "parent": segment.parent, "offset": segment.offset}
            for segment in trajectory.segments
        ],
        "tests": trajectory.tests,
        "engine": trajectory.engine,
        "node": trajectory.node,
        "worker": trajectory.worker,
        "started_at": trajectory.started_at,
        "timings_ms": trajectory.timings_ms,
        "error": trajectory.error,
    }


def _build(header: Frame, arrays: Sequence[Frame]) -> Trajectory:
    try:
        parsed: object = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise CodecError(f"header is not JSON: {error}") from error
    fields = _Fields(parsed)
    return Trajectory(
        ticket=_ticket(fields.child("ticket")),
        status=_status(fields.text("status")),
        reward=Reward(fields.child("reward").number("total"), fields.child("reward").numbers("parts")),
        segments=_segments(fields.children("segments"), arrays),
        tests=tuple(
            TestResult(test.text("name"), test.flag("passed"), test.number("weight"))
            for test in fields.children("tests")
        ),
        engine=fields.text("engine"),
        node=fields.text("node"),
        worker=fields.text("worker"),
        started_at=fields.number("started_at"),
        timings_ms=fields.numbers("timings_ms"),
        error=fields.text("error"),
    )


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise CodecError(f"unknown status {name!r}") from None


def _ticket(fields: _Fields) -> Ticket:
    size = fields.integer("group_size", 1)
    return Ticket(
        run_id=fields.text("run_id"),
        group=GroupId(fields.integer("group")),
        sample=fields.integer("sample", 0, size),
        group_size=size,
        task=fields.text("task"),
        seed=fields.integer("seed", -_INT64),
        attempt=fields.integer("attempt"),
        purpose=fields.text("purpose"),
        vanished=fields.integer("vanished"),
        greedy=fields.flag("greedy"),
    )


def _turn(fields: _Fields, length: int) -> Turn:
    try:
        kind = TurnKind(fields.text("kind"))
    except ValueError:
        raise CodecError("unknown turn kind") from None
    start = fields.integer("start", 0, length + 1)
    return Turn(
        kind=kind,
        start=start,
        end=fields.integer("end", start, length + 1),
        tool=fields.text("tool"),
        exit_code=None if fields.is_null("exit_code") else fields.integer("exit_code", -_INT64),
        ms=fields.number("ms"),
        key_version=fields.integer("key_version", -1),
        mixed_prefix=fields.flag("mixed_prefix"),
        malformed=fields.flag("malformed"),
    )


def _segments(specs: list[_Fields], arrays: Sequence[Frame]) -> tuple[Segment, ...]:
    lengths = [spec.integer("length") for spec in specs]
    total = sum(lengths)
    if not specs:
        raise CodecError("a trajectory has at least one segment")
    for frame, dtype in zip(arrays, _DTYPES, strict=True):
        if memoryview(frame).nbytes != total * dtype.itemsize:
            raise CodecError(f"{dtype.name} frame of {memoryview(frame).nbytes} bytes does not hold {total} values")
    tokens = np.frombuffer(arrays[0], "<i4").astype(np.int32)
    mask = np.frombuffer(arrays[1], "u1").astype(np.uint8)
    logprobs = np.frombuffer(arrays[2], "<f4").astype(np.float32)
    versions = np.frombuffer(arrays[3], "<i8").astype(np.int64)
    _check_values(tokens, mask, logprobs, versions)
    segments: list[Segment] = []
    start = 0
    for index, (spec, length) in enumerate(zip(specs, lengths, strict=True)):
        span = slice(start, start + length)
        start += length
        segments.append(
            Segment(
                token_ids=tokens[span],
                loss_mask=mask[span],
                logprobs=logprobs[span],
                versions=versions[span],
                turns=tuple(_turn(turn, length) for turn in spec.children("turns")),
                parent=spec.integer("parent", -1, index),
                offset=spec.integer("offset"),
            )
        )
    return tuple(segments)


def _check_values(
    tokens: Int32Array, mask: Uint8Array, logprobs: Float32Array, versions: npt.NDArray[np.int64]
) -> None:
    sampled = mask == 1
    rules = (
        (bool((sampled | (mask == 0)).all()), "loss_mask has values other than 0 and 1"),
        (bool((tokens >= 0).all()), "token_ids has negative values"),
        (bool(np.isfinite(logprobs).all()), "logprobs has values that are not finite"),
        (bool((logprobs[~sampled] == 0).all()), "logprobs is not 0 where the mask is 0"),
        (bool((versions[sampled] >= 0).all()), "versions is negative where the mask is 1"),
        (bool((versions[~sampled] == -1).all()), "versions is not -1 where the mask is 0"),
    )
    for holds, message in rules:
        if not holds:
            raise CodecError(message)


class _Fields:
    """Typed reading of one JSON object; a missing or wrong field is a CodecError that names it."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise CodecError("expected a JSON object")
        self._values = cast("dict[str, object]", value)

    def _wrong(self, key: str, expected: str) -> CodecError:
        return CodecError(f"field {key!r} is not {expected}")

    def names(self) -> list[str]:
        return list(self._values)

    def is_null(self, key: str) -> bool:
        return self._values.get(key) is None

    def text(self, key: str) -> str:
        value = self._values.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def flag(self, key: str) -> bool:
        value = self._values.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def integer(self, key: str, low: int = 0, end: int = _INT64) -> int:
        """An integer in ``[low, end)``."""
        value = self._values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value < end:
            raise self._wrong(key, f"an integer in [{low}, {end})")
        return value

    def number(self, key: str) -> float:
        value = self._values.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self._wrong(key, "a finite number")
        return float(value)

    def numbers(self, key: str) -> dict[str, float]:
        fields = self.child(key)
        return {name: fields.number(name) for name in fields.names()}

    def child(self, key: str) -> _Fields:
        return _Fields(self._values.get(key))

    def children(self, key: str) -> list[_Fields]:
        value = self._values.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return [_Fields(item) for item in cast("list[object]", value)]
