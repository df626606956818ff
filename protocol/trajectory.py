"""Rollout requests, trajectories, segments, turns and rewards.

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
"""Identifies a group for the life of a run; issued in the sampler's order and never reused."""

TRAIN_PURPOSE = "train"
"""Purpose of training requests; the purpose of an evaluation request is the evaluation's name."""

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
Uint8Array = npt.NDArray[np.uint8]


class EpisodeStatus(StrEnum):
    """End of an episode.

    Every value is a policy outcome: the episode is graded or gets the reward of a failed task, is trained, and counts
    in its group's baseline.  Infrastructure failures never become a trajectory: see :class:`InfraFailure`.
    """

    COMPLETED = "completed"
    """The agent declared that it was done."""
    TURN_LIMIT = "turn_limit"
    """The agent used its last turn without declaring that it was done."""
    CONTEXT_LIMIT = "context_limit"
    """The next prompt, or the reply, would not fit the context."""
    TIME_LIMIT = "time_limit"
    """Tool execution, and sampling at the nominal rate, used up the agent's time."""
    MALFORMED_LIMIT = "malformed_limit"
    """Too many actions in a row that did not parse."""
    SANDBOX_DESTROYED = "sandbox_destroyed"
    """The agent killed, starved or filled its own container while daemon and host were healthy."""


class InfraFailure(StrEnum):
    """Reason why a request ended without a trajectory, for a failure that the policy did not cause.  It is retried."""

    SANDBOX_START = "sandbox_start"
    TASK_FAULT = "task_fault"
    """The sandbox did not start because the task's own image, setup or service fails; other tasks would start."""
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_VANISHED = "sandbox_vanished"
    """The sandbox disappeared without a known cause.  If it happens to the same sample again, the policy is blamed."""
    ENGINE = "engine"
    DEADLINE = "deadline"
    WORKER_DIED = "worker_died"
    UNEXPECTED = "unexpected"


class DropReason(StrEnum):
    """Reason why an acknowledged trajectory was not trained.  Each is dropped exactly once."""

    ZERO_VARIANCE = "zero_variance"
    """All members of the group have the same reward, so no advantage."""
    TOO_FEW_MEMBERS = "too_few_members"
    """Infrastructure left the group with too few members."""
    ALL_STALE = "all_stale"
    """No token is within ``max_staleness``."""
    NONFINITE = "nonfinite"
    """The loss or gradient of its update was not finite, so the update was skipped."""
    UNUSABLE = "unusable"
    """It is not of this run's model or weights: see :mod:`protocol.usability`."""
    CANCELLED = "cancelled"
    """A person cancelled its group."""
    RUN_ENDED = "run_ended"
    """The run reached its last step first."""


class TurnKind(StrEnum):
    PROMPT = "prompt"
    """System and user messages, rendered once."""
    MODEL = "model"
    """Sampled tokens."""
    OBSERVATION = "observation"
    """The environment's output, and the chat template's tokens around it."""


class ReplyRole(StrEnum):
    """What a harness did with a reply, as far as its later requests show it (:mod:`actors.gateway.reply_roles`)."""

    WORK = ""
    """Part of the agent's work, like every reply of a built-in agent."""
    AUXILIARY = "auxiliary"
    """The answer to a request beside the work: a title, a topic, a safety check."""
    DISCARDED = "discarded"
    """Thrown away: it has no call, and the harness asked again with the same prompt."""


ASIDES = frozenset({ReplyRole.AUXILIARY, ReplyRole.DISCARDED})
"""The roles of replies that are not the agent's work."""


class Turn(NamedTuple):
    """A span ``[start, end)`` of a segment's tokens."""

    kind: TurnKind
    start: int
    end: int
    tool: str = ""
    exit_code: int | None = None
    """Exit code as the agent's own shell reported it: for display, never for grading."""
    duration_ms: float = 0.0
    """Wall milliseconds that the engine (model turns) or the tool (observations) took."""
    key_version: int = -1
    """Weight version in the prefix-cache key of the engine request (model turns)."""
    mixed_prefix: bool = False
    """True if the first sampled version differs from the key's: part of the prefix was computed by other weights."""
    malformed: bool = False
    reward: float = 0.0
    """Reward of this turn in addition to the episode's (model turns); the advantage ``turn`` adds both."""
    server_switches: int = 0
    """Number of times that the server was lost while sampling this turn and another continued after its tokens."""
    role: ReplyRole = ReplyRole.WORK
    """Role of the reply (model turns); one that is not the agent's work has no loss unless the run trains it."""
    number: int = 0
    """Number of the reply in the order in which replies ended (model turns); 0 for all if that is their order in the
    segments."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One unbroken token sequence.  A linear episode has exactly one.

    ``token_ids`` int32 [T]; ``loss_mask`` uint8 [T], 1 where the policy sampled the token in a reply that is trained;
    ``logprobs`` float32 [T], log π_behaviour of that token at the sampling temperature, 0 where the mask is 0;
    ``versions`` int32 [T], the weights that sampled it, −1 where the mask is 0.
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


MAX_REWARD = 1e9
"""Maximum absolute value of a reward, of a part of it, and of a test's weight.

Honest rewards are of the order of 1, and a part that counts bytes or milliseconds stays below it.  The learner's
float32 sums hold the squares of as many as any batch has; of larger ones, one could make a whole batch infinite.
"""


@dataclass(frozen=True, slots=True)
class Reward:
    """``total`` is used by the learner; ``parts`` are its components by name.  Neither shows whether the tests passed:
    see :attr:`Trajectory.passed`."""

    total: float
    parts: dict[str, float] = field(default_factory=dict[str, float])


def make_trajectory_id(group: int, sample: int, purpose: str = TRAIN_PURPOSE) -> str:
    """Return the id of a sample's trajectory, the same for every attempt."""
    return f"{purpose}-g{group:06d}-s{sample:02d}"


def is_training_trajectory(name: str) -> bool:
    """Return whether ``name``, a trajectory id or attempt id, belongs to a training sample."""
    return name.startswith(f"{TRAIN_PURPOSE}-g")


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Request to run one episode: one sample of one group.  Durable in the journal before the scheduler sends it."""

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
    """Number of earlier requests for the same sample that ended without a trajectory."""
    purpose: str = TRAIN_PURPOSE
    """:data:`TRAIN_PURPOSE`, or the name of an evaluation, whose requests never enter the journal."""
    vanished_sandboxes: int = 0
    """Number of earlier attempts whose sandbox disappeared without a known cause."""
    greedy: bool = False
    """Take the most likely token instead of sampling (evaluation only)."""

    @property
    def trajectory_id(self) -> str:
        return make_trajectory_id(self.group, self.sample, self.purpose)

    @property
    def attempt_id(self) -> str:
        """Id of this attempt: the trajectory id and the attempt's number."""
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
    """One line that explains why the status is not ``completed``."""

    @property
    def passed(self) -> bool:
        """True if all tests passed, whatever the reward; False without tests."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def tokens(self) -> int:
        return sum(len(segment) for segment in self.segments)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the policy sampled in replies that are trained."""
        return sum(int(segment.loss_mask.sum()) for segment in self.segments)

    @property
    def sampled_versions(self) -> tuple[int, ...]:
        """Distinct versions that sampled its tokens, in ascending order."""
        masked = (segment.versions[segment.loss_mask > 0] for segment in self.segments)
        return tuple(sorted({int(version) for versions in masked for version in versions}))
