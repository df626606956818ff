"""If these fail, a run uses more than it was given, or counts anew what an earlier start has used."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from launch.run_records.metrics_log import read_budget_usage
from launch.run_records.step_facts import BudgetUsage
from launch.settings.stop import StopSettings
from launch.training.budget import first_limit_reached


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"after_steps": 5}, "stop.after_steps = 5"),
        ({"after_tokens": 900}, "stop.after_tokens = 900"),
        ({"after_trajectories": 70}, "stop.after_trajectories = 70"),
        ({"after_hours": 0.5}, "stop.after_hours = 0.5"),
        ({"after_steps": 6, "after_tokens": 901, "after_trajectories": 71, "after_hours": 0.51}, None),
        ({}, None),
    ],
)
def test_each_limit_is_reached_at_exactly_its_value(limit: dict[str, float], says: str | None) -> None:
    assert first_limit_reached(StopSettings.model_validate(limit), 5, 70, BudgetUsage(900, 1800.0)) == says


def test_usage_of_earlier_starts_counts_including_rolled_back_steps(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "engine_tokens": 10, "elapsed_s": 2.5},
        {"step": 2, "engine_tokens": 20, "elapsed_s": 2.5},
        {"rewound_to": 1, "t": 0.0},
        {"step": 2, "engine_tokens": 30, "elapsed_s": 5.0},
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines) + b'{"torn')
    assert read_budget_usage(tmp_path) == BudgetUsage(60, 10.0)
    assert read_budget_usage(tmp_path / "none") == BudgetUsage()
