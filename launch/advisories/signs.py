"""What a run has shown of late.  Pure: events and metrics in, :class:`Facts` out; bounded, however long the run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from launch.monitor.tail import Event, integer, number, numbers, text
from protocol.groups import GroupOutcome
from protocol.trajectory import InfraFailure, Status, is_training

STEPS, GROUPS, EPISODES, LOOKS = 16, 64, 256, 60
"""So many of the newest count; a look is one of the watch's."""
_FIRST_STEPS = 4


class Step(NamedTuple):
    """Of one line of metrics.jsonl; None where it has no such figure."""

    wait_s: float
    step_s: float
    clip_high: float | None
    clip_low: float | None
    entropy: float | None
    pass_rate: float | None
    age_mean: float | None
    share_by_decile: tuple[float, ...]


def step_of(line: Event) -> Step:
    return Step(
        number(line, "wait_s") or 0.0,
        number(line, "step_s") or 0.0,
        number(line, "clip_high"),
        number(line, "clip_low"),
        number(line, "entropy"),
        number(line, "pass_rate"),
        number(line, "age_mean"),
        tuple(numbers(line, "trained_share_by_decile")),
    )


class Group(NamedTuple):
    """One that has closed."""

    alike: bool
    """No reward in it differs."""
    reward: float | None
    """Mean; None where none came."""


class Disk(NamedTuple):
    """Of the run's directory."""

    free: int
    reserve: int
    """Bytes below which no group opens."""
    full_in_s: float | None
    """Until that is reached, as fast as it fills; None where it does not."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The newest last."""

    steps: tuple[Step, ...] = ()
    entropy_at_first: float | None = None
    groups: tuple[Group, ...] = ()
    statuses: Mapping[Status, int] = field(default_factory=dict[Status, int])
    """How the newest training episodes ended."""
    attempts: int = 0
    """Newest ones that ended, one way or the other."""
    unstarted: int = 0
    """Of these, those that got no sandbox."""
    idle_engines: float | None = None
    """Share of looks at an engine that found it without a request; None before there were enough."""
    disk: Disk | None = None


@dataclass(slots=True)
class Signs:
    entropy_at_first: float | None = None
    _steps: deque[Step] = field(default_factory=lambda: deque[Step](maxlen=STEPS))
    _groups: deque[Group] = field(default_factory=lambda: deque[Group](maxlen=GROUPS))
    _statuses: deque[Status] = field(default_factory=lambda: deque[Status](maxlen=EPISODES))
    _ended: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=EPISODES))
    """Of each attempt, whether it got no sandbox."""
    _idle: deque[float] = field(default_factory=lambda: deque[float](maxlen=LOOKS))
    _disk: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=LOOKS))
    _reserve: int = 0
    phase: str = ""
    flow: str = "run"

    @property
    def trains(self) -> bool:
        """Rollout and learner are to be at work."""
        return self.phase == "training" and self.flow == "run"

    def take(self, event: Event) -> None:
        match text(event, "kind"):
            case "run.phase":
                self.phase = text(event, "phase")
            case "conductor.flow":
                self.flow = text(event, "flow")
            case "group.closed":
                self._group(event)
            case "episode.finished" if is_training(text(event, "trajectory")):
                self._ended.append(False)
                if text(event, "status") in set(Status):
                    self._statuses.append(Status(text(event, "status")))
            case "episode.failed" if is_training(text(event, "trajectory")):
                self._ended.append(text(event, "reason") in {InfraFailure.SANDBOX_START, InfraFailure.TASK_FAULT})
            case _:
                pass

    def _group(self, event: Event) -> None:
        outcome, rewards = text(event, "outcome"), numbers(event, "rewards")
        if outcome in {GroupOutcome.READY, GroupOutcome.ZERO_VARIANCE}:
            self._groups.append(Group(outcome == GroupOutcome.ZERO_VARIANCE, fmean(rewards) if rewards else None))

    def take_metrics(self, line: Event) -> None:
        """A line of metrics.jsonl.  Steps that were taken back were steps all the same."""
        if "rewound_to" in line:
            return
        step = step_of(line)
        self._steps.append(step)
        if integer(line, "step") == _FIRST_STEPS and self.entropy_at_first is None:
            self.entropy_at_first = first_entropy(list(self._steps))

    def looked_at_engines(self, running: Sequence[int]) -> None:
        """So many requests each of those that answered had; counted while rollout is to be at work."""
        if self.trains and running:
            self._idle.append(sum(count == 0 for count in running) / len(running))

    def looked_at_disk(self, now: float, free: int, reserve: int) -> None:
        self._disk.append((now, free))
        self._reserve = reserve

    def facts(self) -> Facts:
        return Facts(
            steps=tuple(self._steps),
            entropy_at_first=self.entropy_at_first,
            groups=tuple(self._groups),
            statuses=Counter(self._statuses),
            attempts=len(self._ended),
            unstarted=sum(self._ended),
            idle_engines=fmean(self._idle) if len(self._idle) == LOOKS else None,
            disk=self._disk_facts(),
        )

    def _disk_facts(self) -> Disk | None:
        if not self._disk:
            return None
        (then, before), (now, free) = self._disk[0], self._disk[-1]
        left, lost = max(0, free - self._reserve), before - free
        filling = lost > 0 and now > then and len(self._disk) == LOOKS  # one checkpoint is no pace
        return Disk(free, self._reserve, left * (now - then) / lost if filling else None)


def first_entropy(steps: Sequence[Step]) -> float | None:
    """Of a run's first steps."""
    found = [step.entropy for step in steps[:_FIRST_STEPS] if step.entropy is not None]
    return fmean(found) if found else None
