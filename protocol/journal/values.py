"""The journal's values: outcomes, leases, accounting, settings, and its errors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from protocol.errors import InfraError, LongshoreError
from protocol.groups import GroupOutcome, GroupPlan
from protocol.trajectory import DropReason, EpisodeStatus, GroupId, RolloutRequest

MIB = 1024 * 1024


class JournalError(LongshoreError):
    """A call would break an invariant of the journal, or the file does.  Nothing was changed."""


class BudgetFullError(InfraError):
    """The byte budget has no room for another group until the learner steps and a checkpoint is written."""


class DiskFullError(InfraError):
    """The disk has no room for the operation.  Nothing was written and nothing is acknowledged."""


class AppendOutcome(StrEnum):
    """Outcome of an arriving trajectory.  All but ``unknown`` acknowledge it: it is in the journal."""

    APPENDED = "appended"
    DUPLICATE = "duplicate"
    """The same trajectory is already stored for its sample."""
    SUPERSEDED = "superseded"
    """Another trajectory of the same sample came first."""
    SUPERSEDED_AGAIN = "superseded_again"
    """The same trajectory is already stored as superseded."""
    UNKNOWN = "unknown"
    """No group waits for it, or its task, seed or group size is not the planned one: it is refused and counted."""


@dataclass(frozen=True, slots=True)
class TrajectoryArrival:
    """One trajectory to append."""

    request: RolloutRequest
    reward: float
    passed: bool
    """True if all of the task's tests passed."""
    status: EpisodeStatus
    digest: bytes
    blob: bytes
    sampled: int
    """Number of sampled tokens."""


@dataclass(frozen=True, slots=True)
class ClosedGroup:
    """A group whose last outstanding sample arrived or was abandoned."""

    seq: int
    """Number of the closing over the life of the run, from 1."""
    group: GroupId
    task: str
    outcome: GroupOutcome
    size: int
    rewards: dict[int, float]
    """Reward by arrived sample."""
    passed: frozenset[int] = frozenset()
    """Samples whose tests all passed, whatever their reward."""


@dataclass(frozen=True, slots=True)
class JournalOpenGroup:
    plan: GroupPlan
    missing: tuple[int, ...]
    """Samples that are still running."""


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
    """Planned samples; ``len(trajectories)`` is the number in the baseline."""
    trajectories: tuple[LeasedTrajectory, ...]


@dataclass(frozen=True, slots=True)
class BatchLease:
    """Whole groups, by group id."""

    groups: tuple[LeasedGroup, ...]

    @property
    def trajectory_ids(self) -> list[str]:
        """Trajectory ids in payload order: by (group, sample)."""
        return [row.trajectory for group in self.groups for row in group.trajectories]


Reason = TypeVar("Reason", bound=str)


@dataclass(frozen=True, slots=True)
class TrajectoryAccounting(Generic[Reason]):
    """Acknowledged trajectories by state."""

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
    """The journal's accounting, with counts that are not part of the sum."""

    unknown: int
    """Trajectories that were refused because no open group waited for them as they were: not acknowledged."""
    abandoned: int
    """Samples abandoned after infrastructure failed their last replacement."""
    bytes: int
    """Bytes of stored payloads."""
    dropped_tokens: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Sampled tokens of dropped trajectories: reason → length bucket → tokens."""
    lost: int = 0
    """Trajectories that a recovery of a damaged file has lost; ``acknowledged`` no longer counts them."""

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "dropped": {reason.value: number for reason, number in self.dropped.items()}}


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    seq: int
    """Groups closed so far."""
    opened: int
    open: int
    ready: int
    """Groups that are closed and not yet used by a step."""
    dropped: int
    """Groups that never reach the learner: zero variance, too few members, cancelled."""
    passed_over: int
    """Groups of batches that made no step because no token could be trained."""
    reserved_bytes: int
    live_bytes: int
    """Bytes that are buffered, or used at a step that no checkpoint covers."""
    uncommitted_bytes: int
    """Used part of ``live_bytes``; above half the budget a checkpoint is due."""
    committed_step: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    run_id: str
    max_trajectory_bytes: int
    budget_bytes: int
    disk_floor_bytes: int = 64 * MIB
    dynamic_sampling: bool
    """Drop groups without reward variance."""
