"""The types of the monitor's API, on which the page, the terminal UI and ``ctl`` are built.

Each answer is one of these as JSON, field by field (docs/monitor.md says at which address).  Times are unix seconds,
lengths are tokens, text of sandboxes and models has lost its control characters.  ``None`` is what is not known: not
yet, or because no file of the run says it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from protocol.run_directory.run_status import RunStatus

T = TypeVar("T")
Number: TypeAlias = "float | None"


class TrajectoryState(StrEnum):
    """The state of an acknowledged trajectory."""

    BUFFERED = "buffered"
    """The trajectory is in the buffer: acknowledged, and no step has used it."""
    TRAINED = "trained"
    DROPPED = "dropped"
    """No step will ever use it; the row's ``reason`` says why."""


class TokenFate(StrEnum):
    """The use of a token by the step that used its trajectory."""

    PROMPT = "prompt"
    """Not sampled: part of the prompt or of a template."""
    OBSERVATION = "observation"
    """Not sampled: output of the environment."""
    WAITING = "waiting"
    """Sampled; no step has used it."""
    TRAINED = "trained"
    STALE = "stale"
    """Sampled, without loss: older than the bound."""
    DROPPED = "dropped"
    """Sampled, without loss: its trajectory was dropped."""
    UNTRAINED = "untrained"
    """Sampled, without loss for no reason that the run recorded."""
    CLIP_HIGH = "clip_high"
    """Trained, and its ratio was above the upper bound: no gradient."""
    CLIP_LOW = "clip_low"
    """Trained, and its ratio was below the lower bound: no gradient."""
    CLIP_DUAL = "clip_dual"
    """Trained under the dual bound: no gradient."""
    CORRECTED = "corrected"
    """A correction (band, OPSM, M2PO) took its loss."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list."""

    rows: list[T]
    next: str | None
    """``cursor`` of the page behind; None on the last.  It stays good while rows are added."""
    total: int
    """The number of rows that match, on all pages."""


@dataclass(frozen=True, slots=True)
class RunCard:
    """One row of the list of runs."""

    id: str
    recipe: str
    mode: str
    status: RunStatus
    step: int
    steps: int
    """The steps that the run is to take; 0 if unknown."""
    reward_mean: Number
    pass_rate: Number
    """Mean reward and pass rate are those of the last step."""
    changed_at: float
    """When the metrics, or else the configuration, were last written."""
    problem: str = ""
    """Why the directory cannot be read, in one line; the other fields are empty then."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run, shown on every page and sent once a second at most."""

    run: str
    revision: int
    """Changes whenever an answer of the API may have changed."""
    status: RunStatus
    phase: str
    step: int
    steps: int
    running: int
    """Episodes."""
    trajectories: int
    """Acknowledged ones that are listed."""
    groups: int
    reward_mean: Number
    pass_rate: Number
    last_event_at: Number
    behind_bytes: int
    """Bytes of the run's files that are not read yet: not 0 for the first seconds of a long run, while totals still
    grow; lists of trajectories are complete from the first answer."""
    problem: str = ""
    """One line for a person: the directory is gone, its files are damaged, …"""
    flow: str = ""
    """The state that a person put a running run into: paused or draining."""
    directory: str = ""
    """Its path, as a person would type it where the monitor was started."""
    resume_command: str = ""
    """The command that goes on with a run that nobody drives and that has not come to its end."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One optimizer step that stands (not one that a resume has taken back)."""

    step: int
    at: float
    groups: int
    trained: int
    """Trajectories."""
    dropped: dict[str, int]
    """Trajectories of its batch by reason."""
    reward_mean: Number
    pass_rate: Number
    loss: Number
    staleness_max: Number
    trained_share: Number
    wait_s: Number
    step_s: Number
    version: str
    """The version of the weights that the step updated; empty if unknown."""


@dataclass(frozen=True, slots=True)
class MetricColumns:
    """Metrics of steps, as columns of equal length."""

    step: list[int]
    columns: dict[str, list[Number]]
    names: list[str]
    """Names of all metrics, requested or not."""


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    id: str
    """The trajectory id, as ``train-g000012-s03``, which the addresses below take."""
    group: int
    sample: int
    task: str
    state: TrajectoryState
    reason: str
    """Why it was dropped; empty otherwise."""
    status: str
    """The status of the episode (:class:`protocol.trajectory.EpisodeStatus`)."""
    reward: float
    passed: bool | None
    tokens: int
    sampled: int
    step: int | None
    """The step that trained or dropped it."""
    advantage: Number
    """The mean over its tokens with loss."""
    logprob_gap: Number
    """The mean of |log π − log μ| over its tokens with loss: the learner's and the engine's log-probability of the
    same token."""
    at: Number
    """When the trajectory was acknowledged."""
    attempt: int
    recording: str
    """The name that ``terminals`` takes; the trajectory's own page says whether a recording exists."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    group: int
    task: str
    size: int
    """Samples planned."""
    arrived: int
    outcome: str
    """``open``, ``ready``, ``zero_variance``, ``infra_short`` (:class:`protocol.groups.GroupOutcome`)."""
    state: str
    """``open``, ``buffered``, ``trained``, ``dropped``, or ``mixed``: some of it trained, some dropped."""
    reasons: dict[str, int]
    """Dropped members by reason."""
    step: int | None
    reward_mean: Number
    reward_min: Number
    reward_max: Number
    passed: int
    sampled: int
    """Tokens, of all members."""
    opened_at: Number
    closed_at: Number


@dataclass(frozen=True, slots=True)
class GroupMemberDetail:
    """One sample of a group, next to the others."""

    row: TrajectoryRow
    parts: dict[str, float]
    """The parts of its reward, by name."""
    turns: int
    tests_passed: int
    tests: int
    ms: dict[str, float]
    """Milliseconds by stage."""
    error: str
    problem: str = ""
    """Why its record cannot be read; all fields but ``row`` are empty then."""


@dataclass(frozen=True, slots=True)
class GroupDetail:
    row: GroupRow
    members: list[GroupMemberDetail]
    missing: list[int]
    """Samples that have not arrived: still running if the group is open, else given up."""


@dataclass(frozen=True, slots=True)
class TurnView:
    """A span of tokens of a segment."""

    kind: str
    """``prompt``, ``model`` or ``observation``."""
    index: int
    """Counts the model's turns from 0 over all segments; of other turns −1."""
    start: int
    end: int
    text: str
    """The text, at most 8,000 characters of its head and tail."""
    cut_chars: int
    tool: str
    exit_code: int | None
    ms: float
    malformed: bool
    mixed_prefix: bool
    cuts: int
    reward: float
    version: str
    """The version of the weights when the engine was asked."""
    sampled: int
    trained: int
    """Tokens of it, with loss."""
    logprob_mean: Number
    logprob_gap_mean: Number
    logprob_gap_max: Number
    staleness_max: int | None
    at_s: Number
    """Where the turn is in the recording, in seconds from its start."""
    recording_offset: int | None
    """The same in bytes of the recording's file."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    length: int
    parent: int
    offset: int
    turns: list[TurnView]


@dataclass(frozen=True, slots=True)
class TestView:
    __test__ = False  # pytest: this is no test class

    name: str
    passed: bool
    weight: float


@dataclass(frozen=True, slots=True)
class RecordingView:
    name: str
    bytes: int
    live: bool


@dataclass(frozen=True, slots=True)
class TrajectoryDetail:
    row: TrajectoryRow
    directory: str
    """:attr:`Head.directory`."""
    size: int
    """The number of samples of its group."""
    seed: int
    parts: dict[str, float]
    tests: list[TestView]
    error: str
    instruction: str
    engine: str
    node: str
    worker: str
    started_at: float
    ms: dict[str, float]
    trained_version: str
    """The version of the weights of the step that used it; empty if none did."""
    max_staleness: Number
    segments: list[SegmentView]
    recording: RecordingView | None


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Tokens ``start`` … ``end`` of a segment, as columns of equal length."""

    segment: int
    start: int
    end: int
    total: int
    """The length of the segment."""
    id: list[int]
    text: list[str]
    """A character that several tokens make stands at the last of them."""
    logprob: list[Number]
    """The engine's log-probability at the sampling temperature; None for tokens that were not sampled."""
    probability: list[Number]
    version: list[str]
    """The version of the weights that sampled the token; empty for tokens that were not sampled."""
    age: list[int | None]
    """Staleness in optimizer steps at the step that used the token."""
    fate: list[TokenFate]
    learner_logprob: list[Number]
    """The learner's log-probability before the update that used the token."""
    logprob_gap: list[Number]
    """``learner_logprob − logprob``."""
    advantage: list[Number]


@dataclass(frozen=True, slots=True)
class ActivityLane:
    """The activity of one engine, worker or learner."""

    name: str
    kind: str
    """``engine``, ``worker`` or ``learner``."""
    states: dict[str, list[float]]
    """State → for each slot the mean number of things in it: episodes of a worker, requests of an engine, else 0 to 1.
    """


@dataclass(frozen=True, slots=True)
class ActivityTimeline:
    since: float
    until: float
    slot_s: float
    lanes: list[ActivityLane] = field(default_factory=list[ActivityLane])


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The body of every error, and the data of the stream's ``gone``."""

    error: str
    """One line: what happened, why, and what to do."""
