"""If these fail, the figures that a run is judged by are not those that were measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from launch.checkpoints.best_checkpoint import BestCheckpoint
from launch.evaluation.held_out.evaluation_store import OnlineEvaluationResult
from launch.run.summary import SummaryFacts, list_failed_checks, summarise_run
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog
from protocol.journal import JournalAccounting
from protocol.trajectory import DropReason
from protocol.weights import WeightVersion
from tests.support.runs.attempts import make_attempt

ACCOUNTING = JournalAccounting(
    acknowledged=20,
    trained=12,
    dropped={DropReason.ZERO_VARIANCE: 4},
    superseded=1,
    in_buffer=3,
    unknown=2,
    abandoned=1,
    bytes=1000,
    dropped_tokens={"zero_variance": {"16": 90}},
)


def attempts(*passed: bool, family: str = "count") -> list[AttemptRecord]:
    """One sampled attempt at each of as many tasks."""
    return [make_attempt(f"{family}-{n}", passed=each, family=family) for n, each in enumerate(passed)]


def facts(**changes: object) -> SummaryFacts:
    defaults: dict[str, object] = {
        "recipe": "demo",
        "mode": "async",
        "negative_control": "none",
        "nodes": 1,
        "placement": "separate",
        "seed": 7,
        "max_staleness": 2,
        "seconds": 61.26,
        "evaluations": {
            "before": [*attempts(True, False, False, False), *attempts(False, family="held")],
            "after": [*attempts(True, True, True, False), *attempts(True, family="held")],
        },
        "held_out_families": ("held",),
        "accounting": ACCOUNTING,
        "leaked": 0,
        "finished": True,
    }
    return SummaryFacts(**(defaults | changes))


def write_run(run_dir: Path) -> None:
    worker, engine, driver = (EventLog(run_dir, name, "node-0") for name in ("worker-0", "engine-0", "driver-1"))
    for trajectory in ("train-g000000-s00-a0", "train-g000000-s01-a0", "before-g000000-s00-a0"):
        worker.emit("sandbox.started", trajectory=trajectory)
        worker.emit("episode.finished", trajectory=trajectory, isolation="shared")
    worker.emit("episode.suspicious", trajectory="train-g000000-s00-a0", why=["ls /tests"])
    worker.emit("episode.failed", trajectory="train-g000001-s00-a0")
    worker.emit("episode.failed", trajectory="before/1/0-a0")
    for attempts, last in ((500, 0.5), (250, 0.2)):
        worker.emit("infra.failure_rates", attempts=attempts, failed=1, by_decile=[0.0] * 9 + [last])
    for version in range(5):  # some never reach an engine
        driver.emit("weights.published", version=version)
    for version, pause in ((1, 10.0), (2, 30.0), (2, 20.0)):
        engine.emit("engine.loaded", version=version, pause_ms=pause)
    for first, last in ((1, 1), (1, 2)):
        worker.emit("trajectory.stored", versions_min=first, versions_max=last)
    with (run_dir / "events" / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"kind": "episode.finished", "traj')
    lines = [
        {"step": 1, "t": 110.0, "elapsed_s": 5.0, "wait_s": 3.0, "step_s": 2.0, "trained_tokens": 100,
         "masked_tokens": 0,
         "engine_tokens": 150, "staleness_max": 0.0, "staleness_mean": 0.0, "clip_high": 0.0, "clip_low": 0.25},
        {"step": 2, "t": 112.0, "elapsed_s": 2.0, "wait_s": 1.0, "step_s": 1.0, "trained_tokens": 999,
         "masked_tokens": 999, "mixed_prefix_turns": 9, "server_switched_turns": 9,
         "engine_tokens": 999, "staleness_max": 9.0, "staleness_mean": 9.0, "clip_high": 0.9, "clip_low": 0.9},
        {"rewound_to": 1, "t": 113.0},
        {"step": 2, "t": 115.0, "elapsed_s": 3.0, "wait_s": 1.0, "step_s": 1.0, "trained_tokens": 300,
         "masked_tokens": 20, "mixed_prefix_turns": 3, "server_switched_turns": 1,
         "auxiliary_turns": 2, "discarded_turns": 1,
         "engine_tokens": 450, "staleness_max": 2.0, "staleness_mean": 1.0, "clip_high": 0.5, "clip_low": 0.0},
    ]  # fmt: skip
    (run_dir / "metrics.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def test_the_summary_has_the_share_of_episodes_by_isolation(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert summarise_run(tmp_path, facts())["grading"] == {"isolation": {"shared": 3}, "suspicious": 1}


def test_the_summary_has_the_online_evaluations_and_the_best_checkpoint(tmp_path: Path) -> None:
    write_run(tmp_path)
    evaluations = [
        OnlineEvaluationResult(
            f"step-{step:06d}",
            step,
            WeightVersion(10 + step),
            [*attempts(True, passed), *attempts(True, family="held")],
        )
        for step, passed in ((4, False), (8, True))
    ]
    best = BestCheckpoint(8, 0.75, tmp_path / "checkpoints" / "step-000008", None)
    summary = summarise_run(tmp_path, facts(online_evaluations=evaluations, best=best))
    steps = summary["evaluation"]["steps"]
    assert [(row["step"], row["version"], row["pass_at_1"], row["n"]) for row in steps] == [
        (4, 14, 0.5, 2),
        (8, 18, 1.0, 2),
    ]
    assert summary["best"] == {"step": 8, "pass_at_1": 0.75, "checkpoint": str(best.checkpoint), "model": None}
    without = summarise_run(tmp_path, facts())
    assert (without["evaluation"]["steps"], without["best"]) == ([], None)


def test_every_figure_equals_what_was_measured(tmp_path: Path) -> None:
    write_run(tmp_path)
    summary = summarise_run(tmp_path, facts())
    assert (summary["steps"], summary["seconds"], summary["finished"]) == (2, 61.3, True)
    assert summary["trajectories"] == {
        "finished": 2,
        "acknowledged": 20,
        "trained": 12,
        "dropped": {"zero_variance": 4},
        "dropped_tokens_by_length": {"zero_variance": {"16": 90}},
        "in_buffer": 3,
        "masked_tokens": 20,
        "mixed_prefix_turns": 3,
        "server_switched_turns": 1,
        "auxiliary_turns": 2,
        "discarded_turns": 1,
        "superseded": 1,
        "spanning_versions": 1,
        "infra_failures": 1,
        "infra_failed_by_decile": [0.0] * 9 + [0.4],
    }
    assert summary["staleness"] == {"max": 2.0, "mean": 0.75, "max_staleness": 2}
    assert summary["clip"] == {"high_max": 0.5, "low_max": 0.25, "high_steps": 1, "low_steps": 1}
    assert summary["weights"] == {
        "versions": 2,
        "loads": 3,
        "pause_ms_p50": 20.0,
        "pause_ms_max": 30.0,
        "paused_share": 0.0,
    }
    assert summary["colocation"] == {"placement": "separate", "offloads": 0, "blocked_s": 0.0, "blocked_share": 0.0}
    assert summary["sandbox"] == {"started": 3, "leaked": 0}
    seconds = 5.0 + 3.0
    assert summary["tokens_per_s"] == {"sampled": 600 / seconds, "trained": 400 / seconds}


def test_the_paused_share_counts_only_loads_during_training(tmp_path: Path) -> None:
    """Refused weights cost a pause too; what an engine loads before and after training costs rollout nothing."""
    phases = [("driver-1", 100, "training"), ("driver-2", 200, "engine"), ("driver-2", 210, "training"),
              ("driver-2", 240, "evaluation_after")]  # fmt: skip
    lines = [{"t": t, "kind": "run.phase", "writer": writer, "seq": 0, "phase": phase} for writer, t, phase in phases]
    lines += [{"t": 110, "kind": "weights.published", "writer": "driver-1", "seq": 1}]  # its last word
    loads = [("engine-0", 99, 7.0), ("engine-0", 105, 100.0), ("engine-1", 105, 200.0), ("engine-0", 220, 300.0),
             ("engine-0", 250, 9.0)]  # fmt: skip
    lines += [
        {"t": t, "kind": "engine.loaded", "writer": writer, "seq": 0, "version": 1, "pause_ms": ms}
        for writer, t, ms in loads
    ]
    lines += [{"t": 230, "kind": "engine.load_failed", "writer": "engine-1", "seq": 1, "pause_ms": 1000.0}]
    lines += [{"t": 231, "kind": "engine.load_failed", "writer": "driver-2", "seq": 1, "why": "no answer"}]
    (tmp_path / "events").mkdir()
    for line in lines:
        with (tmp_path / "events" / f"{line['writer']}.jsonl").open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")
    weights = summarise_run(tmp_path, facts())["weights"]
    assert weights == {
        "versions": 1,
        "loads": 5,
        "pause_ms_p50": 150.0,
        "pause_ms_max": 1000.0,
        "paused_share": round((0.1 + 0.2 + 0.3 + 1.0) / 2 / (10 + 30), 6),
    }


def test_time_offloaded_is_no_pause_for_weights(tmp_path: Path) -> None:
    """Otherwise it could not be seen that a run blocks because of its placement."""
    driver = [
        {"t": 100, "kind": "run.phase", "phase": "training"},
        {"t": 200, "kind": "run.phase", "phase": "shutdown"},
    ]
    offloads = [(90, 5.0, 1, False), (150, 20.0, 2, True), (190, 10.0, 2, False)]
    engine = [
        {"t": t, "kind": "engine.onloaded", "offloaded_s": offloaded_s, "version": version, "new": new}
        for t, offloaded_s, version, new in offloads
    ]
    (tmp_path / "events").mkdir()
    for writer, lines in (("driver-1", driver), ("engine-0", engine)):
        encoded = (orjson.dumps({"writer": writer, "seq": seq} | line) + b"\n" for seq, line in enumerate(lines))
        (tmp_path / "events" / f"{writer}.jsonl").write_bytes(b"".join(encoded))
    summary = summarise_run(tmp_path, facts(placement="colocated"))
    assert summary["colocation"] == {"placement": "colocated", "offloads": 3, "blocked_s": 35.0, "blocked_share": 0.3}
    assert summary["weights"] == {
        "versions": 1,
        "loads": 1,
        "pause_ms_p50": 0.0,
        "pause_ms_max": 0.0,
        "paused_share": 0.0,
    }


def test_events_that_could_not_be_written_are_counted_as_lost(tmp_path: Path) -> None:
    """Figures that are counted from events are too low then."""
    write_run(tmp_path)
    assert summarise_run(tmp_path, facts())["events"] == {"written": 21, "lost": 0}
    lines = [("scheduler", seq) for seq in (0, 3, 4, 0, 1, 3, 1)] + [("late", 1)]
    text = "".join(f'{{"t": 1.0, "kind": "x", "writer": "{writer}", "seq": {seq}}}\n' for writer, seq in lines)
    last = '{"t": 1.0, "kind": "x", "writer": "late", "seq": 3}\n'
    (tmp_path / "events" / "scheduler.jsonl").write_text(f"{text}{last[:40]}\n{last}")
    assert summarise_run(tmp_path, facts())["events"] == {"written": 21 + 9, "lost": (2 + 1 + 1) + (1 + 1)}


def test_the_seconds_of_a_resumed_run_exclude_the_time_between_its_starts(tmp_path: Path) -> None:
    write_run(tmp_path)
    for start, times in ((1, (100.0, 130.0)), (2, (500.0, 540.0))):
        clock = iter(times)
        driver = EventLog(tmp_path, f"driver-{start}", "node-0", lambda clock=clock: next(clock), steady=None)
        driver.emit("run.started")
        driver.emit("run.finished")
    (tmp_path / "events" / "driver-1.jsonl").write_bytes(
        b"".join((tmp_path / "events" / "driver-1.jsonl").read_bytes().splitlines(keepends=True)[-2:])
    )
    assert summarise_run(tmp_path, facts(seconds=41.5))["seconds"] == 30.0 + 41.5


def test_pass_at_1_and_its_difference_cover_only_the_trained_families(tmp_path: Path) -> None:
    found = summarise_run(tmp_path, facts())["evaluation"]
    assert (found["before"]["pass_at_1"], found["after"]["pass_at_1"]) == (0.25, 0.75)
    assert (found["before"]["n"], found["before"]["tasks"]) == (4, 4)
    stderr = math.sqrt((2 * 0.5**2 + 2 * 0.5**2) / 3 / 4)
    assert found["difference"] == 0.5
    assert found["difference_stderr"] == pytest.approx(stderr, abs=1e-4)
    assert found["ci95"] == pytest.approx([0.5 - 1.96 * stderr, 0.5 + 1.96 * stderr], abs=1e-4)
    held = found["families"]["held"]
    assert (held["held_out"], held["before"]["pass_at_1"], held["after"]["pass_at_1"]) == (True, 0.0, 1.0)


def test_a_run_that_was_cut_short_has_no_difference_and_zero_rates(tmp_path: Path) -> None:
    summary = summarise_run(tmp_path, facts(evaluations={"before": attempts(True)}, finished=False))
    assert "difference" not in summary["evaluation"]
    assert (summary["steps"], summary["tokens_per_s"]) == (0, {"sampled": 0.0, "trained": 0.0})
    assert summary["weights"]["pause_ms_p50"] == 0.0


def test_a_step_without_a_token_with_loss_does_not_break_the_summary(tmp_path: Path) -> None:
    line = {
        "step": 1,
        "t": 10.0,
        "wait_s": 0.0,
        "step_s": 1.0,
        "staleness_max": 3.0,
        "staleness_mean": 3.0,
        "trained_tokens": 0,
    }
    (tmp_path / "metrics.jsonl").write_bytes(orjson.dumps(line) + b"\n")
    summary = summarise_run(tmp_path, facts())
    assert (summary["staleness"]["max"], summary["clip"]["high_max"]) == (3.0, 0.0)


def test_every_failed_check_of_a_run_is_named() -> None:
    """Exit code 1 without a word leaves a person to search."""
    steps = [{"staleness_max": 2.0, "trained_trajectories": 5.0}, {"staleness_max": 1.0, "trained_trajectories": 7.0}]
    assert list_failed_checks(facts(), steps) == []
    steps[1]["staleness_max"] = 3.0
    lines = list_failed_checks(facts(finished=False, leaked=2, accounting=replace(ACCOUNTING, trained=11)), steps)
    words = (
        "did not reach its end",
        "2 containers",
        "trained 12 trajectories, the journal has 11",
        "a token of staleness 3",
    )
    assert [word for line, word in zip(lines, words, strict=True) if word in line] == list(words)
