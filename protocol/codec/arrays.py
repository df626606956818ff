"""The four arrays of a trajectory, each the concatenation over its segments.

In a blob the widest stands first, behind a header that is filled up to eight bytes: so each is aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.codec.errors import CodecError
from protocol.codec.frames import Frame
from protocol.trajectory import Float32Array, Int32Array, Segment, Uint8Array

Int64Array: TypeAlias = npt.NDArray[np.int64]

_DTYPES: dict[str, np.dtype[np.generic]] = {
    "versions": np.dtype("<i8"),
    "token_ids": np.dtype("<i4"),
    "logprobs": np.dtype("<f4"),
    "loss_mask": np.dtype("u1"),
}
"""Little-endian, as on every machine that longshore runs on: in memory and on the wire the same bytes."""


class Arrays(NamedTuple):
    """All of length T: int64, int32, float32, uint8."""

    versions: Int64Array
    token_ids: Int32Array
    logprobs: Float32Array
    loss_mask: Uint8Array

    def segment(self, start: int, length: int) -> Arrays:
        own = slice(start, start + length)
        return Arrays(self.versions[own], self.token_ids[own], self.logprobs[own], self.loss_mask[own])

    def check(self) -> None:
        """Raises CodecError where a value breaks an invariant of :class:`protocol.trajectory.Segment`."""
        versions, tokens, logprobs, mask = self
        if not len(tokens):
            return
        if np.maximum.reduce(mask) > 1:
            raise CodecError("loss_mask has values other than 0 and 1")
        sampled = mask.view(np.bool_)
        if np.minimum.reduce(tokens) < 0:
            raise CodecError("token_ids has negative values")
        if not np.logical_and.reduce(np.isfinite(logprobs)):
            raise CodecError("logprobs has values that are not finite")
        if np.logical_or.reduce(np.greater(logprobs != 0, sampled)):
            raise CodecError("logprobs is not 0 where the mask is 0")
        if np.minimum.reduce(versions) < -1 or np.logical_or.reduce((versions >= 0) != sampled):
            if np.less(versions >= 0, sampled).any():
                raise CodecError("versions is negative where the mask is 1")
            raise CodecError("versions is not -1 where the mask is 0")


def join_arrays(segments: Sequence[Segment]) -> Arrays:
    """Of one segment its own arrays, of several a copy.  Raises CodecError for a wrong dtype or length."""
    columns = [_column([getattr(segment, name) for segment in segments], name) for name in _DTYPES]
    for index, segment in enumerate(segments):
        lengths = {name: len(getattr(segment, name)) for name in _DTYPES}
        if len(set(lengths.values())) > 1:
            raise CodecError(f"segment {index} has arrays of different lengths: {lengths}")
    return Arrays(*columns)


def _column(parts: Sequence[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    for part in parts:
        if part.dtype != _DTYPES[name] or part.ndim != 1:
            raise CodecError(f"{name} is {part.dtype}{list(part.shape)}, expected {_DTYPES[name]}[T]")
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def view_arrays(frames: Sequence[Frame], length: int) -> Arrays:
    """Read-only views of ``frames``, ``length`` values each.  Raises CodecError where a frame has another size."""
    found: list[npt.NDArray[Any]] = []
    for frame, (name, dtype) in zip(frames, _DTYPES.items(), strict=True):
        if len(frame) != length * dtype.itemsize:
            raise CodecError(f"{name} frame of {len(frame)} bytes does not hold {length} values")
        found.append(np.frombuffer(memoryview(frame).toreadonly(), dtype))
    return Arrays(*found)
