"""If these fail, an engine elsewhere serves weights that nobody published, or is told of weights that are damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.files.deltas import (
    ELEMENT_WIDTHS,
    MAX_DELTA_BYTES,
    DamagedDeltaError,
    DeltaBaseMismatchError,
    DeltaError,
    apply_delta,
    encode_delta,
)

widths = st.sampled_from(ELEMENT_WIDTHS)
data = st.binary(max_size=300)


@given(base=data, new=data, width=widths)
def test_a_delta_between_any_two_buffers_reproduces_the_second_exactly(base: bytes, new: bytes, width: int) -> None:
    assert apply_delta(base, encode_delta(base, new, width)) == new


@given(base=st.binary(min_size=1, max_size=300), changes=st.dictionaries(st.integers(0, 299), st.integers(1, 255)))
def test_a_delta_of_few_changes_reproduces_the_bytes_exactly(base: bytes, changes: dict[int, int]) -> None:
    new = bytearray(base)
    for place, change in changes.items():
        new[place % len(base)] ^= change
    assert apply_delta(base, encode_delta(base, bytes(new), 2)) == bytes(new)


@given(base=data, new=data, width=widths, at=st.integers(0), flip=st.integers(1, 255))
def test_a_damaged_block_is_never_applied(base: bytes, new: bytes, width: int, at: int, flip: int) -> None:
    block = bytearray(encode_delta(base, new, width))
    block[at % len(block)] ^= flip
    with pytest.raises(DamagedDeltaError):
        apply_delta(base, bytes(block))


@given(base=data, new=data, keep=st.integers(0))
def test_a_block_that_is_cut_off_is_never_applied(base: bytes, new: bytes, keep: int) -> None:
    block = encode_delta(base, new, 2)
    with pytest.raises(DamagedDeltaError):
        apply_delta(base, block[: keep % len(block)])


@given(base=data, new=data, other=data)
def test_a_block_for_other_bytes_is_never_applied(base: bytes, new: bytes, other: bytes) -> None:
    block = encode_delta(base, new, 2)
    if other == base:
        assert apply_delta(other, block) == new
        return
    with pytest.raises(DeltaBaseMismatchError):
        apply_delta(other, block)


@given(block=data, base=data)
def test_a_random_block_is_refused_with_a_delta_error(block: bytes, base: bytes) -> None:
    with pytest.raises(DeltaError):
        apply_delta(base, block)


def test_the_delta_of_a_small_optimizer_step_is_a_small_fraction_of_the_weights() -> None:
    """One weight of thirty moves to a neighbour in bfloat16, as at learning rate 1e-6."""
    dice = np.random.default_rng(0)
    base = dice.normal(0, 0.02, 200_000).astype(np.float32).view(np.uint32) >> 16
    new = base + (dice.random(base.size) < 1 / 30)
    before, after = base.astype("<u2").tobytes(), new.astype("<u2").tobytes()
    block = encode_delta(before, after, 2)
    assert len(block) < 0.03 * len(after)
    assert apply_delta(before, block) == after


def test_a_delta_larger_than_the_read_limit_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="bytes in all"):
        encode_delta(b"", bytes(MAX_DELTA_BYTES + 1), 1)
    with pytest.raises(ValueError, match="elements of 3 bytes"):
        encode_delta(b"", b"", 3)
