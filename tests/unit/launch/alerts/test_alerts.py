"""If these fail, a run that goes wrong says nothing, or one that goes well talks all the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from actors.rewards.judge_models import VoteFailure
from launch.alerts import alert_watch as watch_module
from launch.alerts.alert_watch import AlertWatch, silenced_alerts
from launch.alerts.rules import HEALTH_RULES, HYSTERESIS, TUNING_RULES, Alert, evaluate_rules
from launch.alerts.signals import (
    ENGINE_CHECKS,
    VOTE_FAILURES,
    DiskSignals,
    GroupSignals,
    RunSignals,
    SignalCollector,
    StepSignals,
    read_step_signals,
)
from launch.config import RunConfig, load_recipe
from protocol.events import EventLog
from protocol.groups import GroupOutcome
from protocol.run_directory.run_tail import read_events
from protocol.settings import dotted_fields
from protocol.trajectory import EpisodeStatus

WELL = StepSignals(1.0, 9.0, 0.01, 0.01, 1.0, 0.5, 1.0, (0.9,) * 10)
"""A step of a run to which nothing is to be said."""


def steps(count: int = 8, **changed: object) -> tuple[StepSignals, ...]:
    return (WELL._replace(**changed),) * count


def groups(alike: int, other: int, reward: float = 0.0) -> tuple[GroupSignals, ...]:
    return (GroupSignals(True, reward),) * alike + (GroupSignals(False, 0.5),) * other


GOOD = RunSignals(
    steps=steps(),
    entropy_at_first=1.2,
    groups=groups(8, 24),
    statuses={EpisodeStatus.COMPLETED: 90, EpisodeStatus.TURN_LIMIT: 10},
    attempts=256,
    unstarted=2,
    idle_engines=0.1,
    disk=DiskSignals(50 * 10**9, 10**9, 10**6),
)


def facts(**changed: object) -> RunSignals:
    return dataclasses.replace(GOOD, **changed)


def about(found: Sequence[Alert]) -> list[str]:
    return [each.name for each in found]


def test_a_healthy_run_and_a_run_that_has_just_begun_raise_no_alert() -> None:
    assert evaluate_rules(GOOD) == []
    assert evaluate_rules(RunSignals()) == []


@pytest.mark.parametrize(
    ("bad", "what", "says"),
    [
        ({"groups": groups(17, 15)}, "zero_variance", "53% of the last 32 groups"),
        ({"groups": groups(17, 15)}, "zero_variance", "Choose easier tasks"),
        ({"groups": groups(17, 15, 1.0)}, "zero_variance", "Choose harder tasks"),
        (
            {"statuses": {EpisodeStatus.COMPLETED: 70, EpisodeStatus.TURN_LIMIT: 10, EpisodeStatus.CONTEXT_LIMIT: 20}},
            "truncation",
            "30%",
        ),
        (
            {"statuses": {EpisodeStatus.COMPLETED: 70, EpisodeStatus.CONTEXT_LIMIT: 30}},
            "truncation",
            "agent.context_tokens",
        ),
        ({"statuses": {EpisodeStatus.COMPLETED: 70, EpisodeStatus.TIME_LIMIT: 30}}, "truncation", "agent.time_limit_s"),
        ({"steps": steps(wait_s=6.0, step_s=4.0)}, "idle_learner", "waited 60% of the time"),
        ({"idle_engines": 0.7}, "idle_engines", "70%"),
        (
            {"steps": steps(share_by_decile=(0.95,) * 9 + (0.5,))},
            "trained_share",
            "50% of the tokens in the longest tenth",
        ),
        ({"steps": steps(clip_high=0.2, clip_low=0.1)}, "clipped", "30% of the tokens"),
        ({"steps": steps(clip_high=0.0, clip_low=0.0)}, "unclipped", "Raise learner.lr"),
        ({"steps": steps(entropy=0.05)}, "entropy", "from 1.2 to 0.05"),
        (
            {"steps": steps(1, judge_votes=1.0, judge_failed=(0.0, 1.0, 4.0))},
            "judge",
            "83% of the judge's votes of the last 1 steps failed, most of them down",
        ),
        ({"unstarted": 20}, "sandbox_start", "20 of the last 256 attempts"),
        ({"loop_lag_s": {"buffer": 0.1, "worker-0": 14.2}}, "loop_lag", "worker-0 stood still for 14.2 s"),
        ({"disk": DiskSignals(10**9, 10**9, None)}, "disk", "953.7 MiB are free"),
        ({"disk": DiskSignals(50 * 10**9, 10**9, 3600.0)}, "disk", "full in 1.0 h"),
    ],
)
def test_an_alert_states_its_figure_and_the_setting_to_change(bad: dict[str, object], what: str, says: str) -> None:
    (found,) = evaluate_rules(facts(**bad))
    assert found.name == what
    assert says in found.text
    assert "\n" not in found.text
    assert found.health is (what in HEALTH_RULES)


@pytest.mark.parametrize(
    "good",
    [
        {"groups": groups(16, 16)},
        {"groups": groups(10, 0)},
        {"statuses": {EpisodeStatus.COMPLETED: 75, EpisodeStatus.TURN_LIMIT: 25}},
        {"statuses": {EpisodeStatus.TURN_LIMIT: 20}},
        {"statuses": {EpisodeStatus.COMPLETED: 50, EpisodeStatus.MALFORMED_LIMIT: 50}},
        {"steps": steps(wait_s=5.0, step_s=5.0)},
        {"steps": steps(3, wait_s=9.0, clip_high=0.9)},
        {"steps": steps(share_by_decile=())},
        {"steps": steps(share_by_decile=(0.5,) * 10)},
        {"steps": steps(7, clip_high=0.0, clip_low=0.0)},
        {"steps": steps(clip_high=0.0, clip_low=0.0, staleness_mean=0.0)},
        {"steps": steps(clip_high=None, clip_low=None)},
        {"steps": steps(entropy=0.05, pass_rate=0.95)},
        {"steps": steps(entropy=0.05), "entropy_at_first": None},
        {"unstarted": 2, "attempts": 10},
        {"disk": DiskSignals(3 * 10**9, 10**9, 10**6)},
        {"loop_lag_s": {"worker-0": 4.9}},
        {"disk": None, "idle_engines": None},
    ],
)
def test_signals_that_are_near_a_limit_too_few_or_healthy_raise_no_alert(good: dict[str, object]) -> None:
    assert evaluate_rules(facts(**good)) == []


def test_health_alerts_come_first() -> None:
    found = evaluate_rules(facts(idle_engines=0.9, unstarted=40, disk=DiskSignals(1, 10**9, None)))
    assert about(found) == ["disk", "sandbox_start", "idle_engines"]


def test_a_raised_alert_is_resolved_at_a_lower_threshold_than_it_was_raised_at() -> None:
    near = facts(idle_engines=0.45)
    assert evaluate_rules(near) == []
    assert about(evaluate_rules(near, {"idle_engines"})) == ["idle_engines"]
    assert evaluate_rules(facts(idle_engines=0.5 * HYSTERESIS), {"idle_engines"}) == []


def test_every_key_that_an_alert_names_is_a_key() -> None:
    known = set(dotted_fields(RunConfig))
    leaves = {key.rpartition(".")[2] for key in known}
    bad = facts(
        groups=groups(32, 0),
        statuses={EpisodeStatus.TURN_LIMIT: 90},
        steps=steps(
            wait_s=90.0, share_by_decile=(1.0,) * 9 + (0.1,), clip_high=0.9, entropy=0.01, judge_failed=(1.0, 0.0, 0.0)
        ),
        unstarted=99,
        disk=DiskSignals(1, 10**9, 1.0),
        idle_engines=1.0,
        loop_lag_s={"worker-0": 9.0},
    )
    found = [*evaluate_rules(bad), *evaluate_rules(facts(steps=steps(clip_high=0.0, clip_low=0.0)))]
    assert set(about(found)) == {*HEALTH_RULES, *TUNING_RULES}
    sections = set(RunConfig.model_fields)
    for each in found:
        words = [word.strip("(),;:'") for word in each.text.replace("[data]", "").split()]
        keys = [word.rstrip(".") for word in words if word.split(".")[0] in sections and "." in word.rstrip(".")]
        assert keys or "launch.runs" in each.text, each.text
        assert all(key in known or key in leaves for key in keys), each.text


# -- what is seen ----------------------------------------------------------------------------------------------------


def test_only_the_newest_groups_and_episodes_of_training_count() -> None:
    signals = SignalCollector()
    for _ in range(100):
        signals.observe_event(
            {"kind": "group.closed", "outcome": GroupOutcome.ZERO_VARIANCE.value, "rewards": [1.0, 1.0]}
        )
    for _ in range(64):
        signals.observe_event(
            {"kind": "group.closed", "outcome": GroupOutcome.READY.value, "rewards": [1.0, 0.0, None]}
        )
    signals.observe_event({"kind": "group.closed", "outcome": GroupOutcome.TOO_FEW_MEMBERS.value, "rewards": [1.0]})
    signals.observe_event({"kind": "episode.finished", "trajectory": "before-g000000-s00-a0", "status": "turn_limit"})
    signals.observe_event({"kind": "episode.finished", "trajectory": "train-g000000-s00-a0", "status": "completed"})
    signals.observe_event(
        {"kind": "episode.finished", "trajectory": "train-g000000-s01-a0", "status": "no such status"}
    )
    signals.observe_event({"kind": "episode.failed", "trajectory": "train-g000000-s02", "reason": "sandbox_start"})
    signals.observe_event({"kind": "episode.failed", "trajectory": "before-g000000-s02", "reason": "sandbox_start"})
    found = signals.collect()
    assert found.groups == (GroupSignals(False, 0.5),) * 64
    assert found.statuses == {EpisodeStatus.COMPLETED: 1}
    assert (found.attempts, found.unstarted) == (3, 1)


def test_the_lag_of_a_process_that_is_gone_is_forgotten() -> None:
    signals = SignalCollector()
    for t, writer, max_ms in ((0.0, "worker-0", 14_000.0), (30.0, "buffer", 2.0), (30.0, "worker-1", 8000.0)):
        signals.observe_event({"kind": "loop.measured", "t": t, "writer": writer, "max_ms": max_ms, "p99_ms": 1.0})
    assert signals.collect().loop_lag_s == {"worker-0": 14.0, "buffer": 0.002, "worker-1": 8.0}
    signals.observe_event({"kind": "loop.measured", "t": 100.0, "writer": "buffer", "max_ms": 1.0, "p99_ms": 1.0})
    assert signals.collect().loop_lag_s == {"buffer": 0.001, "worker-1": 8.0}


def test_engines_are_not_idle_while_the_run_is_paused_or_evaluates() -> None:
    signals = SignalCollector()
    for kind, fields in (
        ("run.phase", {"phase": "evaluation_before"}),
        ("run.phase", {"phase": "training"}),
        ("scheduler.flow", {"flow": "pause"}),
        ("scheduler.flow", {"flow": "run"}),
    ):
        signals.observe_event({"kind": kind, **fields})
        if signals.is_training:
            for _ in range(ENGINE_CHECKS // 2):
                signals.observe_engines([0, 4])
        else:
            signals.observe_engines([0, 0])
    assert signals.collect().idle_engines == 0.5


def test_the_disk_forecast_follows_a_longer_trend_and_not_a_single_checkpoint() -> None:
    signals = SignalCollector()
    signals.observe_disk(0.0, 10**9, 10**8)
    signals.observe_disk(5.0, 5 * 10**8, 10**8)
    assert signals.collect().disk == DiskSignals(5 * 10**8, 10**8, None)
    for look in range(ENGINE_CHECKS):
        signals.observe_disk(10.0 * look, 10**9 - 10**6 * look, 10**8)
    disk = signals.collect().disk
    assert disk is not None
    assert disk.full_in_s == pytest.approx((disk.free - disk.reserve) / 1e5)


def test_the_entropy_is_compared_with_that_of_the_first_steps() -> None:
    signals = SignalCollector()
    for step in range(1, 8):
        signals.observe_metrics({"step": step, "entropy": 1.0 if step <= 4 else 0.1})
    signals.observe_metrics({"rewound_to": 3})
    assert signals.collect().entropy_at_first == 1.0
    assert len(signals.collect().steps) == 7


# -- while a run goes on ---------------------------------------------------------------------------------------------


class FakeEngineStatuses:
    def __init__(self) -> None:
        self.running: list[int] = [0]

    async def loads(self) -> list[int]:
        return self.running


@pytest.fixture
def engines() -> FakeEngineStatuses:
    return FakeEngineStatuses()


@pytest.fixture
def watch(tmp_path: Path, engines: FakeEngineStatuses, monkeypatch: pytest.MonkeyPatch) -> AlertWatch:
    monkeypatch.setattr(watch_module, "free_bytes", lambda _: 10**12)
    (tmp_path / "metrics.jsonl").write_bytes(orjson.dumps({"step": 1, "entropy": 2.0}) + b"\n")
    events = EventLog(tmp_path, "driver-1", "node-0")
    events.emit("run.phase", phase="an earlier attempt's")
    made = AlertWatch(run_dir=tmp_path, events=events, reserve_bytes=1, engine_loads=engines.loads)
    events.emit("run.phase", phase="training")
    return made


def alerts_in(run_dir: Path) -> list[tuple[str, object]]:
    found = [event for event in read_events(run_dir) if str(event["kind"]).startswith("alert.")]
    return [(str(event["kind"]), event["name"]) for event in found]


async def test_an_alert_is_raised_once_and_resolved_once(watch: AlertWatch, engines: FakeEngineStatuses) -> None:
    for _ in range(ENGINE_CHECKS + 5):
        await watch.check()
    assert alerts_in(watch.run_dir) == [("alert.raised", "idle_engines")]
    engines.running = [3]
    for _ in range(ENGINE_CHECKS):
        await watch.check()
    assert alerts_in(watch.run_dir) == [("alert.raised", "idle_engines"), ("alert.resolved", "idle_engines")]


async def test_a_silenced_alert_is_not_raised(watch: AlertWatch) -> None:
    watch.silenced = {"idle_engines"}
    for _ in range(ENGINE_CHECKS + 5):
        await watch.check()
    assert alerts_in(watch.run_dir) == []


async def test_the_first_steps_of_an_earlier_start_count_but_its_events_do_not(watch: AlertWatch) -> None:
    await watch.check()
    assert watch.signals.collect().entropy_at_first == 2.0
    assert watch.signals.collect().steps == ()
    assert watch.signals.phase == "training"


async def test_a_full_disk_raises_an_alert(watch: AlertWatch) -> None:
    watch.reserve_bytes = 10**13
    await watch.check()
    assert alerts_in(watch.run_dir) == [("alert.raised", "disk")]
    watch.reserve_bytes = 1
    await watch.check()
    assert alerts_in(watch.run_dir)[-1] == ("alert.resolved", "disk")


def test_shared_devices_unbounded_losses_and_controls_silence_their_alerts() -> None:
    assert silenced_alerts(load_recipe("demo")) == frozenset()
    shared = ["cluster.placement=colocated", "run.mode=sync"]
    assert silenced_alerts(load_recipe("demo", shared)) == {"idle_learner", "idle_engines"}
    assert silenced_alerts(load_recipe("demo", ["learner.loss=reinforce", "learner.tis_cap=2.0"])) >= {"clipped"}
    assert silenced_alerts(load_recipe("demo", ["run.negative_control=lr0"])) == {"unclipped"}


def test_the_votes_of_a_judge_are_read_from_a_steps_parts() -> None:
    step = read_step_signals({"kind": "learner.step", "part_judge_votes": 2.0, "part_judge_down": 1.5})
    assert (step.judge_votes, step.judge_failed) == (2.0, (0.0, 0.0, 1.5))
    assert tuple(VoteFailure) == VOTE_FAILURES
    assert evaluate_rules(facts(steps=steps(judge_votes=3.0, judge_failed=(0.0, 0.0, 2.0)))) == []
