"""If these fail, a sequence is trained twice or never, or a resumed run takes other steps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.config import load_sft
from launch.data.batch_plan import BatchPlan, scheduled_learning_rate


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 8), st.integers(0, 3))
def test_each_epoch_takes_every_sequence_once(sequences: int, epochs: int, batch_size: int, seed: int) -> None:
    plan = BatchPlan(sequences, epochs, batch_size, seed)
    for epoch in range(epochs):
        first = epoch * plan.steps_per_epoch + 1
        batches = [plan.batch(step) for step in range(first, first + plan.steps_per_epoch)]
        assert Counter(index for batch in batches for index in batch) == Counter(range(sequences))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert batches[-1]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {BatchPlan(20, 2, 20, seed).batch(step) for seed in (0, 1) for step in (1, 2)}
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.4, 0.8, 0.8, 0.8, 0.8]),
        ("linear", [0.4, 0.8 - 0.12, 0.8 - 0.24, 0.8 - 0.36, 0.8 - 0.48]),
        ("cosine", [0.4, 0.742705, 0.592705, 0.407295, 0.257295]),
    ],
)
def test_the_learning_rate_warms_up_and_goes_to_its_end(schedule: str, rates: list[float]) -> None:
    end = [] if schedule == "constant" else ["learner.lr_end=0.2"]
    config = load_sft(None, [f"sft.schedule={schedule}", "learner.lr=0.8", "learner.lr_warmup_steps=1", *end])
    assert [scheduled_learning_rate(config, step, 5) for step in range(1, 6)] == pytest.approx(rates, abs=1e-6)


def test_one_step_has_the_whole_rate() -> None:
    assert scheduled_learning_rate(load_sft(None, ["learner.lr=0.5"]), 1, 1) == 0.5
