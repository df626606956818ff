"""If these fail, a curve shows steps that a resume took back, or a reward that no policy had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.run_records.metrics_log import MetricsLog, read_dropped_tokens, read_metrics
from launch.run_records.step_facts import count_increase
from tests.support.fakes.fake_clock import FakeClock
from tests.support.runs.step_facts import make_step_facts


def test_a_line_has_what_the_driver_and_the_learner_measured(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    log = MetricsLog(tmp_path, passed=clock)
    clock.now += 4
    line = log.append_step(make_step_facts(1), {"trained_tokens": 200.0, "staleness_max": 2.0})
    assert line == read_metrics(tmp_path)[0]
    assert (line["step"], line["episodes"], line["groups"], line["zero_variance_groups"]) == (1, 4, 2, 1)
    assert (line["reward_mean"], line["pass_rate"]) == (0.625, 0.5)
    assert (line["trained_trajectories"], line["dropped"], line["staleness_histogram"]) == (
        3,
        {"all_stale": 1},
        [150, 50],
    )
    assert (line["tokens_per_s_trained"], line["tokens_per_s_sampled"]) == (50.0, 100.0)
    assert (line["sampled_staleness_histogram"], line["trained_share_by_decile"]) == ([150, 60], [1.0, 0.5])
    assert line["tokens_by_turn"] == [[100, 90], [110, 110]]
    assert line["untrained_tokens_by_length"] == {"masked": {"16": 10}, "zero_variance": {"8": 80}}
    assert (line["staleness_max"], line["pause_ms"], line["wait_s"], line["step_s"]) == (2.0, 7.25, 0.5, 1.5)


def test_dropped_tokens_are_those_of_the_steps_that_were_not_rolled_back(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for step in (1, 2, 3):
        log.append_step(make_step_facts(step), {})
    log.rewind(2)
    dropped_tokens = read_dropped_tokens(tmp_path)
    assert dropped_tokens == {"zero_variance": {"8": 160}}, "masked tokens are of trajectories that were trained"
    assert count_increase(dropped_tokens, {"zero_variance": {"8": 240, "16": 5}}) == {
        "zero_variance": {"8": 80, "16": 5}
    }


def test_rates_count_from_the_start_of_training(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    log = MetricsLog(tmp_path, passed=clock)
    clock.now += 1000  # warm start, evaluation
    log.start_clock()
    clock.now += 8
    line = log.append_step(make_step_facts(1), {"trained_tokens": 200.0})
    assert (line["elapsed_s"], line["tokens_per_s_sampled"]) == (8.0, 50.0)


def test_a_clock_that_is_put_back_changes_no_rate(tmp_path: Path) -> None:
    wall, passed = FakeClock(1000.0), FakeClock(1000.0)
    log = MetricsLog(tmp_path, wall, passed)
    wall.now -= 3600
    passed.now += 8
    line = log.append_step(make_step_facts(1), {"trained_tokens": 200.0})
    assert (line["t"], line["elapsed_s"], line["tokens_per_s_trained"]) == (wall.now, 8.0, 25.0)


def test_the_pass_rate_is_of_passes_and_not_of_rewards(tmp_path: Path) -> None:
    facts = replace(make_step_facts(1, rewards=(2.0, 1.2, 0.8, 0.0)), passed=1)
    line = MetricsLog(tmp_path).append_step(facts, {})
    assert (line["reward_mean"], line["pass_rate"]) == (1.0, 0.25)


def test_a_step_without_newly_closed_groups_has_no_reward(tmp_path: Path) -> None:
    line = MetricsLog(tmp_path).append_step(make_step_facts(1, rewards=()), {"loss": 0.1})
    assert "reward_mean" not in line
    assert "pass_rate" not in line


def test_rolled_back_steps_are_left_out_until_they_are_repeated(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for step in (1, 2, 3, 4):
        log.append_step(make_step_facts(step), {"loss": float(step)})
    log.rewind(2)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]
    MetricsLog(tmp_path).append_step(make_step_facts(3), {"loss": 30.0})
    assert [(line["step"], line["loss"]) for line in read_metrics(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 30.0)]


@pytest.mark.parametrize("damage", ['{"step": 2, "lo', '{"t": 1}', '{"step": "two"}', "[2]", "2", "null"])
def test_a_torn_or_foreign_line_costs_only_itself(tmp_path: Path, damage: str) -> None:
    log = MetricsLog(tmp_path)
    log.append_step(make_step_facts(1), {})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(f"{damage}\n")
    log.append_step(make_step_facts(3), {})
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 3]


def test_a_rewind_after_a_torn_line_is_read(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for step in (1, 2, 3):
        log.append_step(make_step_facts(step), {})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "lo')
    MetricsLog(tmp_path).rewind(1)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1]


def test_a_run_that_took_no_step_has_no_metrics(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
