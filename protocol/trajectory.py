"""What an episode is: tickets, trajectories, segments, turns, rewards.

Shapes: a segment's arrays all have the segment's length ``T`` (tokens, prompt and observations included).  Versions and
steps are defined in :mod:`protocol.weights`.  Values are immutable: a trajectory is written once, by the worker that
ran it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple, NewType

import numpy as np
import numpy.typing as npt

GroupId = NewType("GroupId", int)
"""Names one group for the life of a run; issued in cursor order, never reused."""

TRAIN_PURPOSE = "train"
"""The purpose of what the learner is to have; an evaluation's is its own name."""

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
Uint8Array = npt.NDArray[np.uint8]


class EpisodeStatus(StrEnum):
    """How an episode ended.  Every value is a policy outcome: it is graded or given the reward of a failed task,
    trained, and counted in its group's baseline.  Infrastructure failures never become a trajectory: see
    :class:`InfraFailure`."""

    COMPLETED = "completed"
    """The agent said that it was done."""
    TURN_LIMIT = "turn_limit"
    """The agent used its last turn without saying so."""
    CONTEXT_LIMIT = "context_limit"
    """The next prompt, or the reply, would not fit the context."""
    TIME_LIMIT = "time_limit"
    """Sandbox-busy seconds and sampled tokens at the nominal rate used the agent's time."""
    MALFORMED_LIMIT = "malformed_limit"
    """Too many actions in a row that did not parse."""
    SANDBOX_DESTROYED = "sandbox_destroyed"
    """The agent killed, starved or filled its own container while daemon and host were healthy."""


class InfraFailure(StrEnum):
    """Why a ticket came back without a trajectory, through no doing of the policy.  It is issued again."""

    SANDBOX_START = "sandbox_start"
    TASK_FAULT = "task_fault"
    """The same, for the task's own image, setup or service fails: another task would have one."""
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_VANISHED = "sandbox_vanished"
    """For no known cause.  When it befalls the same sample again, it counts as the policy's doing."""
    ENGINE = "engine"
    DEADLINE = "deadline"
    WORKER_DIED = "worker_died"
    UNEXPECTED = "unexpected"


class DropReason(StrEnum):
    """Why an acknowledged trajectory was not trained.  Each is dropped exactly once."""

    ZERO_VARIANCE = "zero_variance"
    """Every member of the group has the same reward, so no advantage."""
    INFRA_SHORT = "infra_short"
    """Infrastructure left the group with too few members."""
    ALL_STALE = "all_stale"
    """No token is within the age bound."""
    NONFINITE = "nonfinite"
    """The loss or the gradient of the update that it was in was not finite, so the update was not made."""
    CANCELLED = "cancelled"
    """A person gave its group up."""
    RUN_ENDED = "run_ended"
    """The run reached its last step first."""


class TurnKind(StrEnum):
    PROMPT = "prompt"
    """System and user messages, rendered once."""
    MODEL = "model"
    """Sampled tokens."""
    OBSERVATION = "observation"
    """What the environment answered, and the template's own tokens around it."""


class Turn(NamedTuple):
    """A span ``[start, end)`` of a segment's tokens."""

    kind: TurnKind
    start: int
    end: int
    tool: str = ""
    exit_code: int | None = None
    """As the agent's own shell reported it: for people to read, never for a verdict."""
    duration_ms: float = 0.0
    """Wall milliseconds that the engine (model turns) or the tool (observations) took."""
    key_version: int = -1
    """Version in the KV key under which the engine was asked (model turns)."""
    mixed_prefix: bool = False
    """The reply's first version differs from the key's: part of the prefix was computed by other weights."""
    malformed: bool = False
    reward: float = 0.0
    """Of this turn alone, beside the episode's (model turns); the advantage ``step`` takes both together."""
    server_switches: int = 0
    """Times that the server which sampled this turn was lost, and another went on behind its tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One unbroken token sequence.  A linear episode has exactly one.

    ``token_ids`` int32 [T]; ``loss_mask`` uint8 [T], 1 where the policy sampled the token; ``logprobs`` float32 [T],
    log π_behaviour of that token at the sampling temperature, 0 where the mask is 0; ``versions`` int32 [T], the
    weights that sampled it, −1 where the mask is 0.
    """

    token_ids: Int32Array
    loss_mask: Uint8Array
    logprobs: Float32Array
    versions: Int32Array
    turns: tuple[Turn, ...] = ()
    parent: int = -1
    """Index of the segment whose first ``offset`` tokens precede this one; −1 for none."""
    offset: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class TestResult:
    __test__: ClassVar[bool] = False  # pytest: this is no test class

    name: str
    passed: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Reward:
    """``total`` is what the learner uses; ``parts`` is where it came from, by name.  Neither says whether the tests
    passed: that is :attr:`Trajectory.passed`."""

    total: float
    parts: dict[str, float] = field(default_factory=dict[str, float])


def make_trajectory_id(group: int, sample: int, purpose: str = TRAIN_PURPOSE) -> str:
    """Names the trajectory of a sample, whatever attempt at it made that."""
    return f"{purpose}-g{group:06d}-s{sample:02d}"


def is_training_trajectory(name: str) -> bool:
    """Whether ``name``, a :func:`trajectory_id` or one with its attempt behind it, is of a training sample."""
    return name.startswith(f"{TRAIN_PURPOSE}-g")


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """The right to run one episode: one sample of one group.  Durable in the journal before it leaves the conductor."""

    run_id: str
    group: GroupId
    sample: int
    """Index in the group, ``0 <= sample < group_size``."""
    group_size: int
    task: str
    """Task id, unique in the run's data set."""
    seed: int
    """Sampling seed of this sample; the same for each attempt."""
    attempt: int = 0
    """How many earlier tickets for the same sample came back without a trajectory."""
    purpose: str = TRAIN_PURPOSE
    """:data:`TRAIN`, or the name of the evaluation that it belongs to: those never enter the journal."""
    vanished_sandboxes: int = 0
    """How many of the earlier attempts lost their sandbox for no known cause."""
    greedy: bool = False
    """Take the likeliest token instead of sampling (evaluation only)."""

    @property
    def trajectory_id(self) -> str:
        return make_trajectory_id(self.group, self.sample, self.purpose)

    @property
    def attempt_id(self) -> str:
        """The name of this attempt at the sample: the trajectory's id and the attempt's number."""
        return f"{self.trajectory_id}-a{self.attempt}"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished episode."""

    request: RolloutRequest
    status: EpisodeStatus
    reward: Reward
    segments: tuple[Segment, ...]
    tests: tuple[TestResult, ...] = ()
    engine: str = ""
    node: str = ""
    worker: str = ""
    started_at: float = 0.0
    """Unix seconds, by the worker's clock."""
    timings_ms: dict[str, float] = field(default_factory=dict[str, float])
    """Wall milliseconds by stage: ``acquire``, ``generate``, ``tool``, ``grade``, ``total``."""
    error: str = ""
    """One line for a person: why the status is not ``completed``."""

    @property
    def passed(self) -> bool:
        """All tests did, whatever the reward's total is; without a test, none has shown it."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def tokens(self) -> int:
        return sum(len(segment) for segment in self.segments)

    @property
    def sampled_tokens(self) -> int:
        return sum(int(segment.loss_mask.sum()) for segment in self.segments)

    @property
    def sampled_versions(self) -> tuple[int, ...]:
        """The versions that sampled any of it, each once."""
        masked = (segment.versions[segment.loss_mask > 0] for segment in self.segments)
        return tuple(sorted({int(version) for versions in masked for version in versions}))
