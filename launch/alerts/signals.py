"""What a run has shown of late.  Pure: events and metrics in, :class:`Facts` out; bounded, however long the run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from protocol.groups import GroupOutcome
from protocol.run_directory.json_fields import Event, get_integer, get_number, get_numbers, get_text
from protocol.trajectory import EpisodeStatus, InfraFailure, is_training_trajectory

STEPS, GROUPS, EPISODES, ENGINE_CHECKS = 16, 64, 256, 60
"""So many of the newest count; a look is one of the watch's."""
_FIRST_STEPS = 4


class StepSignals(NamedTuple):
    """Of one line of metrics.jsonl; None where it has no such figure."""

    wait_s: float
    step_s: float
    clip_high: float | None
    clip_low: float | None
    entropy: float | None
    pass_rate: float | None
    staleness_mean: float | None
    share_by_decile: tuple[float, ...]


def read_step_signals(line: Event) -> StepSignals:
    return StepSignals(
        get_number(line, "wait_s") or 0.0,
        get_number(line, "step_s") or 0.0,
        get_number(line, "clip_high"),
        get_number(line, "clip_low"),
        get_number(line, "entropy"),
        get_number(line, "pass_rate"),
        get_number(line, "staleness_mean"),
        tuple(get_numbers(line, "trained_share_by_decile")),
    )


class GroupSignals(NamedTuple):
    """One that has closed."""

    zero_variance: bool
    """No reward in it differs."""
    reward: float | None
    """Mean; None where none came."""


class DiskSignals(NamedTuple):
    """Of the run's directory."""

    free: int
    reserve: int
    """Bytes below which no group opens."""
    full_in_s: float | None
    """Until that is reached, as fast as it fills; None where it does not."""


@dataclass(frozen=True, slots=True)
class RunSignals:
    """The newest last."""

    steps: tuple[StepSignals, ...] = ()
    entropy_at_first: float | None = None
    groups: tuple[GroupSignals, ...] = ()
    statuses: Mapping[EpisodeStatus, int] = field(default_factory=dict[EpisodeStatus, int])
    """How the newest training episodes ended."""
    attempts: int = 0
    """Newest ones that ended, one way or the other."""
    unstarted: int = 0
    """Of these, those that got no sandbox."""
    idle_engines: float | None = None
    """Share of looks at an engine that found it without a request; None before there were enough."""
    disk: DiskSignals | None = None


@dataclass(slots=True)
class SignalCollector:
    entropy_at_first: float | None = None
    _steps: deque[StepSignals] = field(default_factory=lambda: deque[StepSignals](maxlen=STEPS))
    _groups: deque[GroupSignals] = field(default_factory=lambda: deque[GroupSignals](maxlen=GROUPS))
    _statuses: deque[EpisodeStatus] = field(default_factory=lambda: deque[EpisodeStatus](maxlen=EPISODES))
    _ended: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=EPISODES))
    """Of each attempt, whether it got no sandbox."""
    _idle: deque[float] = field(default_factory=lambda: deque[float](maxlen=ENGINE_CHECKS))
    _disk: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=ENGINE_CHECKS))
    _reserve: int = 0
    phase: str = ""
    flow: str = "run"

    @property
    def is_training(self) -> bool:
        """Rollout and learner are to be at work."""
        return self.phase == "training" and self.flow == "run"

    def observe_event(self, event: Event) -> None:
        match get_text(event, "kind"):
            case "run.phase":
                self.phase = get_text(event, "phase")
            case "scheduler.flow":
                self.flow = get_text(event, "flow")
            case "group.closed":
                self._group(event)
            case "episode.finished" if is_training_trajectory(get_text(event, "trajectory")):
                self._ended.append(False)
                if get_text(event, "status") in set(EpisodeStatus):
                    self._statuses.append(EpisodeStatus(get_text(event, "status")))
            case "episode.failed" if is_training_trajectory(get_text(event, "trajectory")):
                self._ended.append(get_text(event, "reason") in {InfraFailure.SANDBOX_START, InfraFailure.TASK_FAULT})
            case _:
                pass

    def _group(self, event: Event) -> None:
        outcome, rewards = get_text(event, "outcome"), get_numbers(event, "rewards")
        if outcome in {GroupOutcome.READY, GroupOutcome.ZERO_VARIANCE}:
            self._groups.append(
                GroupSignals(outcome == GroupOutcome.ZERO_VARIANCE, fmean(rewards) if rewards else None)
            )

    def observe_metrics(self, line: Event) -> None:
        """A line of metrics.jsonl.  Steps that were taken back were steps all the same."""
        if "rewound_to" in line:
            return
        step = read_step_signals(line)
        self._steps.append(step)
        if get_integer(line, "step") == _FIRST_STEPS and self.entropy_at_first is None:
            self.entropy_at_first = first_entropy(list(self._steps))

    def observe_engines(self, running: Sequence[int]) -> None:
        """So many requests each of those that answered had; counted while rollout is to be at work."""
        if self.is_training and running:
            self._idle.append(sum(count == 0 for count in running) / len(running))

    def observe_disk(self, now: float, free: int, reserve: int) -> None:
        self._disk.append((now, free))
        self._reserve = reserve

    def collect(self) -> RunSignals:
        return RunSignals(
            steps=tuple(self._steps),
            entropy_at_first=self.entropy_at_first,
            groups=tuple(self._groups),
            statuses=Counter(self._statuses),
            attempts=len(self._ended),
            unstarted=sum(self._ended),
            idle_engines=fmean(self._idle) if len(self._idle) == ENGINE_CHECKS else None,
            disk=self._disk_facts(),
        )

    def _disk_facts(self) -> DiskSignals | None:
        if not self._disk:
            return None
        (then, before), (now, free) = self._disk[0], self._disk[-1]
        left, lost = max(0, free - self._reserve), before - free
        filling = lost > 0 and now > then and len(self._disk) == ENGINE_CHECKS  # one checkpoint is no pace
        return DiskSignals(free, self._reserve, left * (now - then) / lost if filling else None)


def first_entropy(steps: Sequence[StepSignals]) -> float | None:
    """Of a run's first steps."""
    found = [step.entropy for step in steps[:_FIRST_STEPS] if step.entropy is not None]
    return fmean(found) if found else None
