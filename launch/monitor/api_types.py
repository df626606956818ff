"""What the monitor's API answers, as types: the page, the terminal UI and ``ctl`` are built on these.

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
    """Where a trajectory is."""

    BUFFERED = "buffered"
    """In the buffer: acknowledged, and no step has used it."""
    TRAINED = "trained"
    DROPPED = "dropped"
    """For good; the row's ``reason`` says why."""


class TokenFate(StrEnum):
    """What became of a token at the step that used its trajectory."""

    PROMPT = "prompt"
    """Not sampled: of the prompt, or of a template."""
    OBSERVATION = "observation"
    """Not sampled: what the environment answered."""
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
    """A part of a list."""

    rows: list[T]
    next: str | None
    """``cursor`` of the page behind; None on the last.  It stays good while rows are added."""
    total: int
    """Rows that match, on all pages."""


@dataclass(frozen=True, slots=True)
class RunCard:
    """A run among others."""

    id: str
    recipe: str
    mode: str
    status: RunStatus
    step: int
    steps: int
    """That it is to take; 0 where unknown."""
    reward_mean: Number
    pass_rate: Number
    """Both of the last step."""
    changed_at: float
    """When its metrics, or else its record, were last written."""
    problem: str = ""
    """One line: why its directory cannot be read; everything else is empty then."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The little that says where a run stands: on every page, once a second at most."""

    run: str
    revision: int
    """Changes whenever anything that the API answers may have."""
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
    """Of the run's files that are not taken in yet: not 0 for the first seconds of a long run, while totals still
    grow; lists of trajectories are whole from the first answer."""
    problem: str = ""
    """One line for a person: the directory is gone, its files are damaged, …"""
    flow: str = ""
    """What a person has made of a run that goes on: paused, draining."""
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
    """Of the weights that it updated; empty where no file says it."""


@dataclass(frozen=True, slots=True)
class MetricColumns:
    """Metrics of steps, as columns of equal length."""

    step: list[int]
    columns: dict[str, list[Number]]
    names: list[str]
    """All that there are, asked for or not."""


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    id: str
    """As ``train-g000012-s03``: what every address below takes."""
    group: int
    sample: int
    task: str
    state: TrajectoryState
    reason: str
    """Why it was dropped; empty otherwise."""
    status: str
    """How the episode ended (:class:`protocol.trajectory.Status`)."""
    reward: float
    passed: bool | None
    tokens: int
    sampled: int
    step: int | None
    """The step that trained or dropped it."""
    advantage: Number
    """Mean over its tokens with loss."""
    logprob_gap: Number
    """Mean of |log π − log μ| over them: learner's and engine's log-probability of the same token."""
    at: Number
    """When it was acknowledged."""
    attempt: int
    recording: str
    """What ``terminals`` takes; whether there is a recording, a trajectory's own page says."""


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
    """A sample of a group beside the others."""

    row: TrajectoryRow
    parts: dict[str, float]
    """Of its reward, by name."""
    turns: int
    tests_passed: int
    tests: int
    ms: dict[str, float]
    """By stage."""
    error: str
    problem: str = ""
    """Why its record cannot be read; then everything but ``row`` is empty."""


@dataclass(frozen=True, slots=True)
class GroupDetail:
    row: GroupRow
    members: list[GroupMemberDetail]
    missing: list[int]
    """Samples that have not arrived: still out where the group is open, else given up."""


@dataclass(frozen=True, slots=True)
class TurnView:
    """A span of a segment's tokens."""

    kind: str
    """``prompt``, ``model`` or ``observation``."""
    index: int
    """Counts the model's turns from 0 over all segments; of other turns −1."""
    start: int
    end: int
    text: str
    """At most 8,000 characters of it, head and tail."""
    cut_chars: int
    tool: str
    exit_code: int | None
    ms: float
    malformed: bool
    mixed_prefix: bool
    cuts: int
    reward: float
    version: str
    """Under which the engine was asked."""
    sampled: int
    trained: int
    """Tokens of it, with loss."""
    logprob_mean: Number
    logprob_gap_mean: Number
    logprob_gap_max: Number
    staleness_max: int | None
    at_s: Number
    """Where it stands in the recording, seconds from its beginning."""
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
    """Of its group."""
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
    """Of the weights of the step that used it; empty where none did."""
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
    """Of the segment."""
    id: list[int]
    text: list[str]
    """A character that several tokens make stands at the last of them."""
    logprob: list[Number]
    """Of the engine, at the sampling temperature; None for what was not sampled."""
    probability: list[Number]
    version: list[str]
    """Of the weights that sampled it; empty for what was not sampled."""
    age: list[int | None]
    """In optimizer steps, at the step that used it."""
    fate: list[TokenFate]
    learner_logprob: list[Number]
    """The learner's, before the update that it was in."""
    logprob_gap: list[Number]
    """``learner_logprob − logprob``."""
    advantage: list[Number]


@dataclass(frozen=True, slots=True)
class ActivityLane:
    """What one engine, worker or learner did."""

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
    """Every answer that is no success, and the data of the stream's ``gone``."""

    error: str
    """One line: what, why, and what to do."""
