"""The four arrays of a trajectory, each concatenated over its segments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.codec.errors import CodecError
from protocol.codec.frames import Frame
from protocol.trajectory import Float32Array, Int32Array, Segment, Uint8Array

_DTYPES: dict[str, np.dtype[np.generic]] = {
    "versions": np.dtype("<i4"),
    "token_ids": np.dtype("<i4"),
    "logprobs": np.dtype("<f4"),
    "loss_mask": np.dtype("u1"),
}
"""Little-endian like every machine that longshore runs on, so memory and wire have the same bytes."""
_FIELDS: Callable[[Segment], tuple[npt.NDArray[Any], ...]] = operator.attrgetter(*_DTYPES)


class TrajectoryArrays(NamedTuple):
    """Arrays of length T: int32, int32, float32, uint8."""

    versions: Int32Array
    token_ids: Int32Array
    logprobs: Float32Array
    loss_mask: Uint8Array

    def segment(self, start: int, length: int) -> TrajectoryArrays:
        own = slice(start, start + length)
        return TrajectoryArrays(self.versions[own], self.token_ids[own], self.logprobs[own], self.loss_mask[own])

    def sampled_versions(self) -> tuple[int, ...]:
        """Return the distinct versions of sampled tokens, in ascending order; they come in runs, one a turn or so."""
        versions = self.versions
        changed = versions[1:][versions[1:] != versions[:-1]]
        return tuple(sorted({*versions[:1].tolist(), *changed.tolist()} - {-1}))

    def check_invariants(self) -> None:
        """Raise CodecError if a value breaks an invariant of :class:`protocol.trajectory.Segment`.

        A few fast passes accept valid arrays; only a violation is searched for the broken rule.
        """
        versions, tokens, logprobs, mask = self
        if not len(tokens):
            return
        valid = (
            (versions >= 0).tobytes() == mask.tobytes()  # so the mask is 0 or 1, too
            and np.minimum.reduce(versions) >= -1
            and np.minimum.reduce(tokens) >= 0
            and np.logical_and.reduce(np.isfinite(logprobs))
            and not np.count_nonzero(np.greater(logprobs != 0, mask.view(np.bool_)))
        )
        if not valid:
            self._raise_violation()

    def _raise_violation(self) -> None:
        versions, tokens, logprobs, mask = self
        if mask.max() > 1:
            raise CodecError("loss_mask has values other than 0 and 1")
        sampled = mask.view(np.bool_)
        if tokens.min() < 0:
            raise CodecError("token_ids has negative values")
        if not np.isfinite(logprobs).all():
            raise CodecError("logprobs has values that are not finite")
        if (logprobs[~sampled] != 0).any():
            raise CodecError("logprobs is not 0 where the mask is 0")
        if (versions[sampled] < 0).any():
            raise CodecError("versions is negative where the mask is 1")
        if (versions[~sampled] != -1).any():
            raise CodecError("versions is not -1 where the mask is 0")


def join_arrays(segments: Sequence[Segment]) -> TrajectoryArrays:
    """Return the arrays of one segment as they are, of several as a concatenated copy.  Raises CodecError for a wrong
    dtype or length."""
    columns = [_columns(segment, index) for index, segment in enumerate(segments)]
    if len(columns) == 1:
        return TrajectoryArrays(*map(np.ascontiguousarray, columns[0]))
    return TrajectoryArrays(*map(np.concatenate, zip(*columns, strict=True)))


def _columns(segment: Segment, index: int) -> tuple[npt.NDArray[Any], ...]:
    arrays = _FIELDS(segment)
    for array, (name, dtype) in zip(arrays, _DTYPES.items(), strict=True):
        if array.dtype != dtype or array.ndim != 1:
            raise CodecError(f"{name} is {array.dtype}{list(array.shape)}, expected {dtype}[T]")
    if len(set(map(len, arrays))) > 1:
        lengths = dict(zip(_DTYPES, map(len, arrays), strict=True))
        raise CodecError(f"segment {index} has arrays of different lengths: {lengths}")
    return arrays


def view_arrays(frames: Sequence[Frame], length: int) -> TrajectoryArrays:
    """Return read-only views of ``frames``, ``length`` values each.  Raises CodecError if a frame has another size."""
    found: list[npt.NDArray[Any]] = []
    for frame, (name, dtype) in zip(frames, _DTYPES.items(), strict=True):
        if len(frame) != length * dtype.itemsize:
            raise CodecError(f"{name} frame of {len(frame)} bytes does not hold {length} values")
        found.append(np.frombuffer(memoryview(frame).toreadonly(), dtype))
    return TrajectoryArrays(*found)
