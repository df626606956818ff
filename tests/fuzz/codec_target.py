"""Trajectories as a peer with a key could send them: the checksum is right, the header and the arrays are anything."""

from __future__ import annotations

import json

import orjson

from protocol import codec
from protocol.codec import CodecError, Frame
from protocol.codec.frames import ARRAY_COUNT, seal, unseal
from tests.fuzz.fuzz_target import FuzzFindingError, FuzzTarget, InputKind
from tests.support.runs.trajectories import assert_equal, make_segment, make_trajectory

_MAX_BYTES = 1 << 20


def _run(data: bytes) -> None:
    try:
        frames = _frames(data)
    except CodecError:
        return
    decoded = _decode(frames)
    try:
        summary = codec.inspect_frames(frames, max_bytes=_MAX_BYTES)
    except CodecError:
        summary = None
    if (decoded is None) != (summary is None):
        raise FuzzFindingError("decode_trajectory and inspect_frames disagree")
    if decoded is not None:
        assert_equal(decoded, codec.unpack_trajectory(codec.pack_trajectory(decoded)))


def _decode(frames: list[Frame]) -> codec.Trajectory | None:
    try:
        return codec.decode_trajectory(frames, max_bytes=_MAX_BYTES)
    except CodecError:
        return None


def _frames(data: bytes) -> list[Frame]:
    """Return the frames of ``{"header", "arrays": [HEX]}``, sealed; those of a blob if the input is none."""
    try:
        value = json.loads(data)
        arrays: list[Frame] = [bytes.fromhex(value["arrays"][index]) for index in range(ARRAY_COUNT)]
        header = orjson.dumps(value["header"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return list(codec.unpack_frames(data, max_bytes=_MAX_BYTES))
    return [seal(header, arrays), *arrays]


def _corpus() -> list[bytes]:
    several = (make_segment(), make_segment(2, 9, version=3))
    found: list[bytes] = []
    for trajectory in (make_trajectory(), make_trajectory(segments=several, reward=1.5)):
        frames = codec.encode_trajectory(trajectory)
        header = orjson.loads(bytes(unseal(frames)))
        found.append(json.dumps({"header": header, "arrays": [bytes(each).hex() for each in frames[1:]]}).encode())
        found.append(codec.pack_trajectory(trajectory))
    return found


TARGETS = [FuzzTarget("codec", InputKind.JSON, _run, _corpus)]
