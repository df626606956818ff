"""What the journal takes and gives: outcomes, leases, books, settings, and its errors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from protocol.errors import InfraError, LongshoreError
from protocol.groups import GroupOutcome, GroupPlan
from protocol.trajectory import DropReason, EpisodeStatus, GroupId

MIB = 1024 * 1024


class JournalError(LongshoreError):
    """A call that would break an invariant of the journal, or a file that does.  Nothing was changed."""


class BudgetFullError(InfraError):
    """The byte budget has no room for another group; it has once the learner steps and a checkpoint is written."""


class DiskFullError(InfraError):
    """The disk has no room for what the operation may write.  Nothing was written, nothing is acknowledged."""


class AppendOutcome(StrEnum):
    """What became of an arriving trajectory.  All but ``unknown`` are acknowledged: it is in the journal."""

    APPENDED = "appended"
    DUPLICATE = "duplicate"
    """This very trajectory is there already, as the one of its sample."""
    SUPERSEDED = "superseded"
    """Another trajectory of the same sample came first."""
    SUPERSEDED_AGAIN = "superseded_again"
    """This very trajectory is there already, superseded."""
    UNKNOWN = "unknown"
    """No group waits for it: refused and counted."""


@dataclass(frozen=True, slots=True)
class TrajectoryArrival:
    """One trajectory to append."""

    trajectory: str
    group: GroupId
    sample: int
    reward: float
    passed: bool
    """Its task's tests, all of them."""
    status: EpisodeStatus
    digest: bytes
    blob: bytes
    sampled: int
    """Tokens."""


@dataclass(frozen=True, slots=True)
class ClosedGroup:
    """A group whose last outstanding sample arrived or was abandoned."""

    seq: int
    """Counts closings over the life of the run, from 1."""
    group: GroupId
    task: str
    outcome: GroupOutcome
    size: int
    rewards: dict[int, float]
    """By sample, of those that arrived."""
    passed: frozenset[int] = frozenset()
    """Samples whose tests all passed, whatever their reward is."""


@dataclass(frozen=True, slots=True)
class JournalOpenGroup:
    plan: GroupPlan
    missing: tuple[int, ...]
    """Samples whose tickets are out."""


@dataclass(frozen=True, slots=True)
class LeasedTrajectory:
    trajectory: str
    sample: int
    reward: float
    bytes: int


@dataclass(frozen=True, slots=True)
class LeasedGroup:
    group: GroupId
    task: str
    size: int
    """Samples planned; ``len(rows)`` is how many the baseline has."""
    trajectories: tuple[LeasedTrajectory, ...]


@dataclass(frozen=True, slots=True)
class BatchLease:
    """Whole groups, by group id."""

    groups: tuple[LeasedGroup, ...]

    @property
    def trajectory_ids(self) -> list[str]:
        """In payload order: by (group, sample)."""
        return [row.trajectory for group in self.groups for row in group.trajectories]


Reason = TypeVar("Reason", bound=str)


@dataclass(frozen=True, slots=True)
class TrajectoryAccounting(Generic[Reason]):
    """Where every acknowledged trajectory is."""

    acknowledged: int
    trained: int
    dropped: dict[Reason, int]
    superseded: int
    in_buffer: int

    @property
    def balanced(self) -> bool:
        return self.acknowledged == self.trained + sum(self.dropped.values()) + self.superseded + self.in_buffer


@dataclass(frozen=True, slots=True)
class JournalAccounting(TrajectoryAccounting[DropReason]):
    """The journal's own, and what is not in the sum."""

    unknown: int
    """Arrived for no open group and were refused: not acknowledged."""
    abandoned: int
    """Samples given up after infrastructure failed their last replacement."""
    bytes: int
    """Of payloads that are stored."""
    dropped_tokens: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """What drops cost by length: reason → bucket of length → sampled tokens."""
    lost: int = 0
    """Had been acknowledged; a damaged file was recovered without them, and they are in ``acknowledged`` no longer."""

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "dropped": {reason.value: number for reason, number in self.dropped.items()}}


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    seq: int
    """Groups closed so far."""
    opened: int
    open: int
    ready: int
    """Closed and not leased to the end."""
    dropped: int
    """Groups that never reach the learner: zero variance, too few members."""
    passed_over: int
    """Groups of batches in which no token could be trained: they made no step."""
    reserved_bytes: int
    live_bytes: int
    """Held, or trained at a step that no checkpoint covers."""
    uncommitted_bytes: int
    """The trained part of ``live_bytes``; above half the budget a checkpoint is due."""
    committed_step: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    run_id: str
    max_trajectory_bytes: int
    budget_bytes: int
    disk_floor_bytes: int = 64 * MIB
    dynamic_sampling: bool = True
    """Groups without variance are dropped."""
