"""If these fail, a sequence is trained twice or never, or a resumed run takes other steps."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from launch.data.batch_plan import BatchPlan


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 8), st.integers(0, 3))
def test_each_epoch_takes_every_sequence_once(sequences: int, epochs: int, batch_size: int, seed: int) -> None:
    plan = BatchPlan(sequences, epochs, batch_size, seed)
    for epoch in range(epochs):
        first = epoch * plan.steps_per_epoch + 1
        batches = [plan.batch(step) for step in range(first, first + plan.steps_per_epoch)]
        assert Counter(index for batch in batches for index in batch) == Counter(range(sequences))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert batches[-1]


def test_every_epoch_and_seed_has_a_different_order() -> None:
    orders = {BatchPlan(20, 2, 20, seed).batch(step) for seed in (0, 1) for step in (1, 2)}
    assert len(orders) == 4
