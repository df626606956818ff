"""Measures a finished run from its directory.

The clock runs from the start of the first episode that a measured step trained to the end of the last step.  In
``async`` mode that episode starts during earlier steps, which the clock includes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import orjson

from launch.bench.training_modes.tool_delays import ToolDelays
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.held_out.evaluation_store import AFTER, read_run_evaluation
from launch.evaluation.scores import drop_held_out_families
from launch.run_records.stored_config import load_stored_config
from launch.settings.checkpoint import RetentionSettings
from protocol.errors import InfraError
from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from protocol.run_directory.layout import SUMMARY_FILE
from protocol.run_directory.run_tail import read_events
from protocol.trajectory import is_training_trajectory
from sandbox.tools.shell_only import SHELL_EXEC


class TimeSpan(NamedTuple):
    """A span of time in unix seconds."""

    begin: float
    end: float


class IdleShares(NamedTuple):
    """Idle shares of the measured time."""

    engine: float
    """Share without a request on any engine."""
    learner: float
    """Share without a running step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurement:
    seconds: float
    """Length of the measured time."""
    after_warm_up_s: float
    """Seconds from the end of the warm-up to the end of the last step."""
    episodes: int
    """Number of episodes that the measured steps trained."""
    finished: int
    """Number of training episodes that ended in the measured time, including those of dropped groups."""
    sleep_share: float
    """Share of these episodes' time that was their delay."""
    idle: IdleShares
    attempts: Sequence[AttemptRecord]
    """Attempts of the evaluation after training, at tasks of trained families."""
    failed: Sequence[str]
    """The run's own checks that failed."""

    @property
    def episodes_per_s(self) -> float:
        return self.episodes / self.seconds

    @property
    def after_warm_up_per_s(self) -> float:
        """Episodes per second from the end of the warm-up on; some of them started before."""
        return self.episodes / self.after_warm_up_s

    @property
    def finished_per_s(self) -> float:
        return self.finished / self.seconds


def measure_run(run_dir: Path, warm_up: int, waits: ToolDelays) -> RunMeasurement:
    """Measure a finished run, without its first ``warm_up`` steps.  Raises InfraError if it has no later step."""
    newest = CheckpointStore(run_dir, RetentionSettings(keep=1)).list_checkpoints()[-1]
    lines = [line for line in newest.ledger() if line.step > warm_up]
    if not lines:
        raise InfraError(f"{run_dir} took no step after the first {warm_up}: its events and logs say why")
    names = {name for line in lines for name in line.trained}
    seen = _TrainingEvents(waits)
    for event in read_events(run_dir):
        seen.apply_event(event)
    clock = TimeSpan(min(seen.started[name] for name in names), seen.steps[lines[-1].step].end)
    seconds = clock.end - clock.begin
    warm_s = clock.end - seen.steps[warm_up].end if warm_up else seconds
    ended = [each for each in seen.ended if clock.begin <= each.end <= clock.end]
    total_s = sum(each.seconds for each in ended)
    config, summary = load_stored_config(run_dir), orjson.loads((run_dir / SUMMARY_FILE).read_bytes())
    attempts = read_run_evaluation(run_dir, AFTER, lines[-1].step) or []
    return RunMeasurement(
        seconds=seconds,
        after_warm_up_s=warm_s,
        episodes=len(names),
        finished=len(ended),
        sleep_share=sum(min(seen.waited.get(each.attempt, 0.0), each.tool_s) for each in ended) / total_s
        if total_s
        else 0.0,
        idle=IdleShares(
            1 - covered_seconds(seen.sampled, clock) / seconds,
            1 - covered_seconds(seen.steps.values(), clock) / seconds,
        ),
        attempts=drop_held_out_families(attempts, [config.data.held_out_family]),
        failed=cast("list[str]", summary["failed_checks"]),
    )


def covered_seconds(spans: Iterable[TimeSpan], clock: TimeSpan) -> float:
    """Return the seconds of ``clock`` that at least one of ``spans`` covers."""
    seconds, reached = 0.0, clock.begin
    for span in sorted(spans):
        begin, end = max(span.begin, reached), min(span.end, clock.end)
        if end > begin:
            seconds += end - begin
            reached = end
    return seconds


class _EndedEpisode(NamedTuple):
    attempt: str
    end: float
    seconds: float
    tool_s: float
    """Seconds in tools; a call without a command was not delayed, and one that timed out not completely."""


@dataclass(slots=True)
class _TrainingEvents:
    """Collects the facts about training from events."""

    waits: ToolDelays
    started: dict[str, float] = field(default_factory=dict[str, float])
    """Trajectory → start of its first attempt."""
    waited: dict[str, float] = field(default_factory=dict[str, float])
    """Attempt → delay of its first command in seconds."""
    ended: list[_EndedEpisode] = field(default_factory=list[_EndedEpisode])
    sampled: list[TimeSpan] = field(default_factory=list[TimeSpan])
    """Span of each request to an engine."""
    steps: dict[int, TimeSpan] = field(default_factory=dict[int, TimeSpan])
    _samples: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Attempt → task and sample."""

    def apply_event(self, event: Mapping[str, JsonValue]) -> None:
        t = _number(event["t"])
        if event["kind"] == "learner.step":
            self.steps[int(_number(event["step"]))] = TimeSpan(t - _number(event["step_s"]), t)
            return
        attempt = str(event.get("trajectory", ""))
        if not is_training_trajectory(attempt):
            return
        match event["kind"]:
            case "episode.started":
                name = attempt.rpartition("-a")[0]
                self.started[name] = min(t, self.started.get(name, t))
                self._samples[attempt] = str(event["task"]), int(_number(event["sample"]))
            case "episode.turn":
                self.sampled.append(TimeSpan(t - _number(event["ms"]) / 1000, t))
            case "episode.tool" if event["tool"] == SHELL_EXEC.name:
                self.waited[attempt] = self.waits.draw_delay_s(*self._samples[attempt])
            case "episode.finished":
                ms = cast("dict[str, float]", event["ms"])
                self.ended.append(_EndedEpisode(attempt, t, ms["total"] / 1000, ms["tool"] / 1000))
            case _:
                pass


def _number(value: JsonValue) -> float:
    return float(cast("float", value))
