"""Collects the recent signals of a run from its events and metrics, with bounded memory.  Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from protocol.groups import GroupOutcome
from protocol.run_directory.json_fields import Event, get_integer, get_number, get_numbers, get_text
from protocol.run_directory.loop_lags import RecentLoopLags
from protocol.trajectory import EpisodeStatus, InfraFailure, is_training_trajectory

STEPS, GROUPS, EPISODES, ENGINE_CHECKS = 16, 64, 256, 60
"""Number of most recent steps, groups, episodes and engine checks that rules look at."""
_FIRST_STEPS = 4
VOTE_FAILURES = ("invalid", "slow", "down")
"""Kinds of a judge's failed votes (:class:`actors.rewards.judge_models.VoteFailure`)."""


class StepSignals(NamedTuple):
    """The figures of one line of metrics.jsonl that rules use; None if the line does not have them."""

    wait_s: float
    step_s: float
    clip_high: float | None
    clip_low: float | None
    entropy: float | None
    pass_rate: float | None
    staleness_mean: float | None
    share_by_decile: tuple[float, ...]
    judge_votes: float = 0.0
    """Mean number of a judge's valid votes on a trajectory."""
    judge_failed: tuple[float, ...] = (0.0,) * len(VOTE_FAILURES)
    """Mean number of a judge's failed votes on a trajectory, by :data:`VOTE_FAILURES`."""


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
        get_number(line, "part_judge_votes") or 0.0,
        tuple(get_number(line, f"part_judge_{kind}") or 0.0 for kind in VOTE_FAILURES),
    )


class GroupSignals(NamedTuple):
    """A closed group."""

    zero_variance: bool
    """Whether all rewards are equal."""
    reward: float | None
    """Mean reward; None if no sample arrived."""


class DiskSignals(NamedTuple):
    """Free space on the disk of the run's directory."""

    free: int
    reserve: int
    """Bytes below which no group opens."""
    full_in_s: float | None
    """Seconds until the reserve is reached at the current rate; None if the disk does not fill."""


@dataclass(frozen=True, slots=True)
class RunSignals:
    """The recent signals, newest last."""

    steps: tuple[StepSignals, ...] = ()
    entropy_at_first: float | None = None
    groups: tuple[GroupSignals, ...] = ()
    statuses: Mapping[EpisodeStatus, int] = field(default_factory=dict[EpisodeStatus, int])
    """Number of recent training episodes by status."""
    attempts: int = 0
    """Number of recent attempts that ended, failed ones included."""
    unstarted: int = 0
    """Number of these attempts that got no sandbox."""
    idle_engines: float | None = None
    """Share of engine checks that found no request; None before there were enough."""
    disk: DiskSignals | None = None
    loop_lag_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Longest lag of an event loop in the last report of each process, in seconds."""


@dataclass(slots=True)
class SignalCollector:
    """Collects signals from events, metrics and checks."""

    entropy_at_first: float | None = None
    _steps: deque[StepSignals] = field(default_factory=lambda: deque[StepSignals](maxlen=STEPS))
    _groups: deque[GroupSignals] = field(default_factory=lambda: deque[GroupSignals](maxlen=GROUPS))
    _statuses: deque[EpisodeStatus] = field(default_factory=lambda: deque[EpisodeStatus](maxlen=EPISODES))
    _ended: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=EPISODES))
    """Whether each recent attempt got no sandbox."""
    _idle: deque[float] = field(default_factory=lambda: deque[float](maxlen=ENGINE_CHECKS))
    _disk: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=ENGINE_CHECKS))
    _reserve: int = 0
    _loop_lags: RecentLoopLags = field(default_factory=RecentLoopLags)
    phase: str = ""
    flow: str = "run"

    @property
    def is_training(self) -> bool:
        """Whether rollout and learner should be working."""
        return self.phase == "training" and self.flow == "run"

    def observe_event(self, event: Event) -> None:
        match get_text(event, "kind"):
            case "run.phase":
                self.phase = get_text(event, "phase")
            case "scheduler.flow":
                self.flow = get_text(event, "flow")
            case "group.closed":
                self._group(event)
            case "loop.measured":
                self._loop_lags.observe_report(event)
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
        """Add a line of metrics.jsonl.  Steps that were taken back later count too."""
        if "rewound_to" in line:
            return
        step = read_step_signals(line)
        self._steps.append(step)
        if get_integer(line, "step") == _FIRST_STEPS and self.entropy_at_first is None:
            self.entropy_at_first = first_entropy(list(self._steps))

    def observe_engines(self, running: Sequence[int]) -> None:
        """Add the number of requests of each engine that responded; counts only during training."""
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
            loop_lag_s={name: lag.max_ms / 1000 for name, lag in self._loop_lags.by_process().items()},
        )

    def _disk_facts(self) -> DiskSignals | None:
        if not self._disk:
            return None
        (then, before), (now, free) = self._disk[0], self._disk[-1]
        left, lost = max(0, free - self._reserve), before - free
        filling = lost > 0 and now > then and len(self._disk) == ENGINE_CHECKS  # a single checkpoint is no trend
        return DiskSignals(free, self._reserve, left * (now - then) / lost if filling else None)


def first_entropy(steps: Sequence[StepSignals]) -> float | None:
    """Return the mean entropy of a run's first steps."""
    found = [step.entropy for step in steps[:_FIRST_STEPS] if step.entropy is not None]
    return fmean(found) if found else None
