"""If these fail, supervised training steps with another learning rate than its schedule says."""

from __future__ import annotations

import pytest

from launch.config import load_sft
from launch.sft.learning_rate import scheduled_learning_rate


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.4, 0.8, 0.8, 0.8, 0.8]),
        ("linear", [0.4, 0.8 - 0.12, 0.8 - 0.24, 0.8 - 0.36, 0.8 - 0.48]),
        ("cosine", [0.4, 0.742705, 0.592705, 0.407295, 0.257295]),
    ],
)
def test_the_learning_rate_warms_up_and_follows_its_schedule(schedule: str, rates: list[float]) -> None:
    end = [] if schedule == "constant" else ["learner.lr_end=0.2"]
    config = load_sft(None, [f"sft.schedule={schedule}", "learner.lr=0.8", "learner.lr_warmup_steps=1", *end])
    assert [scheduled_learning_rate(config, step, 5) for step in range(1, 6)] == pytest.approx(rates, abs=1e-6)


def test_a_single_step_has_the_full_rate() -> None:
    assert scheduled_learning_rate(load_sft(None, ["learner.lr=0.5"]), 1, 1) == 0.5
