"""If these fail, one bad message ends the buffer, fills its memory, or reaches the learner as something else.

Two kinds of damage: to the bytes, which the checksum finds, and to a header whose checksum is right, since whoever may
send can also compute it.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from protocol import codec
from protocol.codec import CodecError, Frame
from protocol.codec.frames import seal, unseal
from tests.support.runs.trajectories import assert_equal, make_segment, make_trajectory

MAX = 1 << 16
MEMORY = MAX + codec.decode_memory_bound(MAX)
"""The bytes of a blob's frames and of reading them."""

ORIGINAL = make_trajectory(segments=(make_segment(), make_segment(2, 90, version=3)))
BLOB = codec.pack_trajectory(ORIGINAL)
JSON_BYTES = b'0123456789-{}[]",:.eEntrufals \xff'


def _damaged_blob(rng: random.Random) -> bytes:
    blob = bytearray(BLOB)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(blob)) if blob else 0
        match rng.randrange(6):
            case 0:
                blob[at : at + 1] = bytes([blob[at] ^ 1 << rng.randrange(8)]) if blob else b""
            case 1:
                del blob[at:]
            case 2:
                blob[at : at + 8] = rng.randbytes(8)
            case 3:
                blob[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                blob[at : at + 8] = rng.choice([0, 1, 1 << 31, 1 << 32, (1 << 64) - 1]).to_bytes(8, "little")
            case _:
                end = rng.randrange(at, len(blob) + 1)
                blob[at:end] = blob[at:end] * 2
    return bytes(blob)


def _lying_blob(rng: random.Random) -> bytes:
    frames: list[Frame] = list(codec.unpack_frames(BLOB))
    header = bytearray(unseal(frames))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(header))
        match rng.randrange(4):
            case 0:
                header[at] = rng.choice(JSON_BYTES)
            case 1:
                header[at:at] = rng.choice([b"-", b"99999999999999999999", b"null", b"1e999", b'"', b"[[[[", b"true"])
            case 2:
                end = min(len(header), at + rng.randrange(1, 40))
                header[at:end] = b""
            case _:
                other = rng.randrange(len(header))
                length = rng.randrange(1, 30)
                header[at : at + length] = header[other : other + length]
        header = header or bytearray(b" ")
    if rng.randrange(2):
        index = rng.randrange(1, len(frames))
        array = bytearray(frames[index])
        array[rng.randrange(len(array))] = rng.randrange(256)
        frames[index] = bytes(array)
    return codec.pack_frames([seal(bytes(header), frames[1:]), *frames[1:]])


def _fuzz(count: int, seed: int, damage: Callable[[random.Random], bytes]) -> tuple[int, int, int]:
    """Refused, survived, and the most memory that one message took."""
    rng = random.Random(seed)
    refused = survived = most = 0
    tracemalloc.start()
    try:
        for _ in range(count):
            blob = damage(rng)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            try:
                decoded = codec.unpack_trajectory(blob, max_bytes=MAX)
            except CodecError:
                refused += 1
            else:
                survived += 1
                if damage is _damaged_blob:
                    assert_equal(ORIGINAL, decoded)
                else:  # a valid one, though another: it can be written and read again
                    assert_equal(decoded, codec.unpack_trajectory(codec.pack_trajectory(decoded), max_bytes=MAX))
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return refused, survived, most


def _assert_holds(count: int, seed: int) -> None:
    refused, survived, most = _fuzz(count, seed, _damaged_blob)
    assert refused > 0.9 * count
    assert most <= MEMORY
    refused, survived, most = _fuzz(count, seed, _lying_blob)
    assert refused > 0.5 * count
    assert survived > 0
    assert most <= MEMORY


def test_no_damaged_message_is_accepted() -> None:
    _assert_holds(2500, seed=0)


@pytest.mark.slow
def test_no_damaged_message_is_accepted_in_two_hundred_thousand_tries() -> None:
    _assert_holds(100_000, seed=1)


HEADER: dict[str, Any] = orjson.loads(bytes(unseal(codec.unpack_frames(BLOB))))
TURNS: dict[str, Any] = HEADER["segments"][0]["turns"]


def _with_turns(**columns: object) -> dict[str, Any]:
    return HEADER | {"segments": [HEADER["segments"][0] | {"turns": TURNS | columns}]}


@pytest.mark.parametrize(
    "make",
    [
        lambda many: HEADER | {"reward": {"total": 0.0, "parts": {f"{number:x}": 0 for number in range(many // 10)}}},
        lambda many: HEADER | {"timings_ms": {f"{number:x}": 1 for number in range(many // 10)}},
        lambda many: _with_turns(duration_ms=[1] * (many // 2)),
        lambda many: _with_turns(start=[999] * (many // 4)),
        lambda many: _with_turns(tool=["ab"] * (many // 5)),
        lambda many: HEADER | {"tests": [{"name": "a", "passed": True, "weight": 1}] * (many // 40)},
        lambda many: (
            HEADER | {"segments": [HEADER["segments"][0] | {"turns": {key: [] for key in TURNS}}] * (many // 180)}
        ),
    ],
)
def test_decoding_a_header_of_small_objects_stays_within_the_memory_bound(
    make: Callable[[int], dict[str, Any]],
) -> None:
    """Each is of the right types as far as it goes, so that all of it is made before anything is refused."""
    limit = 1 << 22
    arrays: list[Frame] = [b"", b"", b"", b""]
    bomb = orjson.dumps(make(limit // 16 - 4096))
    assert limit // 32 < len(bomb) < limit // 16
    frames = [seal(bomb, arrays), *arrays]
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            codec.decode_trajectory(frames, max_bytes=limit)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 2 * len(bomb) < most <= codec.decode_memory_bound(limit)


@pytest.mark.parametrize("atom", [b"[", b'{"a":'])
def test_a_deeply_nested_header_is_refused(atom: bytes) -> None:
    arrays: list[Frame] = [b"", b"", b"", b""]
    with pytest.raises(CodecError):
        codec.decode_trajectory([seal(b'{"unknown":' + atom * 50_000, arrays), *arrays], max_bytes=1 << 24)


def test_a_header_above_its_size_limit_is_refused_unread() -> None:
    limit = 1 << 22
    with pytest.raises(CodecError, match="above its share"):
        codec.decode_trajectory([bytes(limit // 16 + 1), b"", b"", b"", b""], max_bytes=limit)


def test_a_header_that_promises_huge_arrays_allocates_nothing() -> None:
    frames: list[Frame] = list(codec.unpack_frames(BLOB))
    lying = bytes(unseal(frames)).replace(b'"length":8', b'"length":9000000000000')
    with pytest.raises(CodecError, match="does not hold"):
        codec.decode_trajectory([seal(lying, frames[1:]), *frames[1:]], max_bytes=MAX)


def test_the_checksum_covers_every_byte() -> None:
    whole = codec.encode_trajectory(ORIGINAL)
    for index, frame in enumerate(map(bytes, whole)):
        for at in range(len(frame)):
            damaged = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
            with pytest.raises(CodecError):
                codec.decode_trajectory([*whole[:index], damaged, *whole[index + 1 :]], max_bytes=MAX)
