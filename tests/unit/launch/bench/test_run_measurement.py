"""If these fail, the bench of modes measures other times or episodes than those of the measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from launch.bench.training_modes.run_measurement import RunMeasurement, TimeSpan, covered_seconds, measure_run
from launch.bench.training_modes.tool_delays import ToolDelays
from launch.checkpoints.store import CheckpointManifest, CheckpointStore, LedgerLine, shard_digests
from launch.config import RunConfig
from launch.run_records.stored_config import config_tables
from launch.settings.checkpoint import RetentionSettings
from protocol.errors import InfraError
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog, JsonValue
from protocol.files.digests import digest_files
from tests.support.runs.attempts import make_attempt
from tests.support.runs.evaluations import write_run_attempts

WAITS = ToolDelays("0/1", median_s=3.0, p95_s=12.0)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(0.0, 5.0)], 0.0),
        ([(5.0, 12.0), (11.0, 14.0)], 4.0),
        ([(18.0, 25.0), (10.0, 11.0), (10.0, 13.0), (12.0, 12.5)], 5.0),
        ([(0.0, 99.0)], 10.0),
    ],
)
def test_overlapping_spans_count_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered_seconds([TimeSpan(*span) for span in spans], TimeSpan(10.0, 20.0)) == seconds


@dataclass
class FakeRunDirectory:
    """Write the files of a run that the bench reads."""

    path: Path
    now: float = 0.0
    logs: dict[str, EventLog] = field(default_factory=dict[str, EventLog])

    def say(self, t: float, writer: str, kind: str, **fields: JsonValue) -> None:
        if writer not in self.logs:
            self.logs[writer] = EventLog(self.path, writer, "node-0", lambda: self.now, steady=None)
        self.now = t
        self.logs[writer].emit(kind, **fields)

    def episode(
        self, name: str, begin: float, end: float, *, sampled: tuple[float, float], tool: str = "", tool_s: float = 99.0
    ) -> None:
        attempt, group, sample = f"{name}-a0", int(name[7:13]), int(name[15:17])
        say = {"writer": "worker", "trajectory": attempt}
        self.say(begin, kind="episode.started", task=f"task-{group}", group=group, sample=sample, **say)
        self.say(sampled[1], kind="episode.turn", ms=1000 * (sampled[1] - sampled[0]), **say)
        if tool:
            self.say(sampled[1], kind="episode.tool", tool=tool, **say)
        self.say(end, kind="episode.finished", ms={"total": 1000 * (end - begin), "tool": 1000 * tool_s}, **say)

    def step(self, step: int, begin: float, end: float) -> None:
        self.say(end, "driver", "learner.step", step=step, step_s=end - begin)

    def finish(
        self, lines: Sequence[LedgerLine], attempts: Sequence[AttemptRecord] = (), failed: Sequence[str] = ()
    ) -> None:
        store, step = CheckpointStore(self.path, RetentionSettings(keep=1)), lines[-1].step
        shards = store.begin(step)
        (shards / "shard").write_bytes(b"weights")
        files = shard_digests(digest_files(shards, ["shard"]))
        store.finish(CheckpointManifest(step, step, 1, {}, [(step, step, -1)], files), lines)
        config = RunConfig.model_validate({"data": {"held_out_family": "held"}})
        self._write("config.json", {"config": config_tables(config)})
        self._write("summary.json", {"failed_checks": [*failed]})
        write_run_attempts(self.path, "after", attempts, step)

    def _write(self, name: str, value: object) -> None:
        (self.path / name).write_bytes(orjson.dumps(value))


def attempt(task: str, family: str) -> AttemptRecord:
    return make_attempt(task, family=family)


def name(group: int, sample: int) -> str:
    return f"train-g{group:06d}-s{sample:02d}"


@pytest.fixture
def run(tmp_path: Path) -> FakeRunDirectory:
    """Step 1 trains group 0, step 2 groups 1 and 3; group 2 is dropped.  The clock runs from 100 to 140."""
    made = FakeRunDirectory(tmp_path)
    made.episode(name(0, 0), 80.0, 110.0, sampled=(81.0, 82.0))
    made.episode(name(1, 0), 100.0, 120.0, sampled=(101.0, 103.0), tool="shell_exec")
    made.episode(name(1, 1), 101.0, 105.0, sampled=(102.0, 104.0))
    made.episode(name(2, 0), 104.0, 114.0, sampled=(110.0, 112.0), tool="shell_exec", tool_s=0.001)
    made.episode(name(3, 0), 121.0, 131.0, sampled=(122.0, 124.0), tool="no_such_tool")
    made.episode(name(4, 0), 130.0, 145.0, sampled=(139.0, 142.0), tool="shell_exec")
    made.say(150.0, "worker", "episode.turn", trajectory="after-g000000-s00-a0", ms=50_000.0)
    made.step(1, 112.0, 113.0)
    made.step(2, 137.0, 140.0)
    lines = [LedgerLine(1, 0, (name(0, 0),), {}), LedgerLine(2, 1, (name(1, 0), name(1, 1), name(3, 0)), {})]
    made.finish(lines, [attempt("a", "f"), attempt("b", "held")], ["a token of staleness 3"])
    return made


@pytest.fixture
def measured(run: FakeRunDirectory) -> RunMeasurement:
    return measure_run(run.path, 1, WAITS)


def test_the_clock_runs_from_the_first_measured_episode_to_the_last_step(measured: RunMeasurement) -> None:
    assert measured.seconds == pytest.approx(40.0)
    assert measured.episodes_per_s == pytest.approx(3 / 40)
    assert measured.after_warm_up_s == pytest.approx(27.0)
    assert measured.after_warm_up_per_s == pytest.approx(3 / 27)
    assert measured.finished == 5
    assert measured.finished_per_s == pytest.approx(5 / 40)


def test_without_a_warm_up_every_step_counts(run: FakeRunDirectory) -> None:
    whole = measure_run(run.path, 0, WAITS)
    assert (whole.seconds, whole.episodes) == (pytest.approx(60.0), 4)
    assert whole.after_warm_up_s == whole.seconds


def test_engine_and_learner_are_idle_while_they_have_no_work(measured: RunMeasurement) -> None:
    assert measured.idle.engine == pytest.approx(1 - (3 + 2 + 2 + 1) / 40)
    assert measured.idle.learner == pytest.approx(1 - (1 + 3) / 40)


def test_only_an_episode_that_ran_a_command_slept(measured: RunMeasurement) -> None:
    slept = WAITS.draw_delay_s("task-1", 0) + 0.001
    assert measured.sleep_share == pytest.approx(slept / (30 + 20 + 4 + 10 + 10))


def test_attempts_at_the_held_out_family_do_not_count_towards_the_score(measured: RunMeasurement) -> None:
    assert [each.task for each in measured.attempts] == ["a"]
    assert measured.failed == ["a token of staleness 3"]


def test_a_run_that_stopped_during_its_warm_up_cannot_be_measured(run: FakeRunDirectory) -> None:
    with pytest.raises(InfraError, match="no step after the first 2"):
        measure_run(run.path, 2, WAITS)
