"""The types of the monitor's API, on which the page, the terminal UI and ``ctl`` are built.

Each response is one of these types as JSON (docs/monitor.md lists the addresses).  Times are in unix seconds and
lengths in tokens; text of sandboxes and models has no control characters.  ``None`` means unknown: not known yet, or
in no file of the run.
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
    """Acknowledged, and not used by a step yet."""
    TRAINED = "trained"
    DROPPED = "dropped"
    """Never used for training; the row's ``reason`` says why."""


class TokenUse(StrEnum):
    """Use of a token in training, or the reason that it was not trained."""

    PROMPT = "prompt"
    """Not sampled: part of the prompt or the chat template."""
    OBSERVATION = "observation"
    """Not sampled: output of the environment."""
    WAITING = "waiting"
    """Sampled, and not used by a step yet."""
    TRAINED = "trained"
    STALE = "stale"
    """Sampled, and masked because it was older than the staleness bound."""
    DROPPED = "dropped"
    """Sampled, in a trajectory that was dropped."""
    AUXILIARY = "auxiliary"
    """Sampled for a harness's request beside its work, and without loss."""
    DISCARDED = "discarded"
    """Sampled in a reply that a harness threw away and asked for again, and without loss."""
    UNTRAINED = "untrained"
    """Sampled, and without loss for an unrecorded reason."""
    CLIP_HIGH = "clip_high"
    """Trained, with its ratio clipped at the upper bound, so without gradient."""
    CLIP_LOW = "clip_low"
    """Trained, with its ratio clipped at the lower bound, so without gradient."""
    CLIP_DUAL = "clip_dual"
    """Trained, with its ratio clipped at the dual bound, so without gradient."""
    CORRECTED = "corrected"
    """Sampled, and masked by a correction (band, OPSM, M2PO)."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list."""

    rows: list[T]
    next: str | None
    """Cursor of the next page; None on the last page.  It stays valid while rows are added."""
    total: int
    """Number of matching rows on all pages."""


@dataclass(frozen=True, slots=True)
class RunCard:
    """One row of the list of runs."""

    id: str
    recipe: str
    mode: str
    status: RunStatus
    step: int
    steps: int
    """Planned number of steps; 0 if unknown."""
    reward_mean: Number
    """Mean reward of the last step."""
    pass_rate: Number
    """Pass rate of the last step."""
    changed_at: float
    """Time of the last write to the metrics, or else to the configuration."""
    problem: str = ""
    """Why the directory cannot be read, in one line; otherwise empty."""


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
    """Number of running episodes."""
    trajectories: int
    """Number of acknowledged trajectories."""
    groups: int
    reward_mean: Number
    pass_rate: Number
    last_event_at: Number
    behind_bytes: int
    """Bytes of the run's files that are not counted yet.  In a long run totals grow during the first seconds, while
    lists of trajectories are complete from the first response."""
    problem: str = ""
    """Problem of the run's directory, in one line; empty without one."""
    flow: str = ""
    """``paused`` or ``draining`` if a person requested it; otherwise empty."""
    directory: str = ""
    """Path of the run's directory, relative to where the monitor was started if possible."""
    resume_command: str = ""
    """Command that resumes a stopped run; otherwise empty."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One optimizer step that no resume has taken back."""

    step: int
    at: float
    groups: int
    trained: int
    """Number of trained trajectories."""
    dropped: dict[str, int]
    """Number of dropped trajectories of the batch by reason."""
    reward_mean: Number
    pass_rate: Number
    loss: Number
    staleness_max: Number
    trained_share: Number
    wait_s: Number
    step_s: Number
    version: str
    """Version of the weights that the step updated; empty if unknown."""


@dataclass(frozen=True, slots=True)
class MetricColumns:
    """Metrics of steps, as columns of equal length."""

    step: list[int]
    columns: dict[str, list[Number]]
    names: list[str]
    """Names of all metrics of the run, not only the requested ones."""


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """One row of the list of trajectories."""

    id: str
    """Trajectory id, for example ``train-g000012-s03``."""
    group: int
    sample: int
    task: str
    state: TrajectoryState
    reason: str
    """Why it was dropped; empty otherwise."""
    status: str
    """Status of the episode (:class:`protocol.trajectory.EpisodeStatus`)."""
    reward: float
    passed: bool | None
    tokens: int
    sampled: int
    step: int | None
    """Step that trained or dropped the trajectory."""
    advantage: Number
    """Mean advantage of the tokens with loss."""
    logprob_gap: Number
    """Mean of |log π − log μ| over the tokens with loss: the learner's and the engine's log-probability of a token."""
    at: Number
    """Time of the acknowledgement."""
    attempt: int
    recording: str
    """Name of the terminal recording, which may not exist."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One row of the list of groups."""

    group: int
    task: str
    size: int
    """Planned number of samples."""
    arrived: int
    outcome: str
    """``open``, ``ready``, ``zero_variance``, ``too_few_members`` (:class:`protocol.groups.GroupOutcome`)."""
    state: str
    """``open``, ``buffered``, ``trained``, ``dropped``, or ``mixed`` (partly trained, partly dropped)."""
    reasons: dict[str, int]
    """Number of dropped members by reason."""
    step: int | None
    reward_mean: Number
    reward_min: Number
    reward_max: Number
    passed: int
    sampled: int
    """Number of sampled tokens of all members."""
    opened_at: Number
    closed_at: Number


@dataclass(frozen=True, slots=True)
class GroupMemberDetail:
    """One member of a group, for the comparison with the others."""

    row: TrajectoryRow
    parts: dict[str, float]
    """Components of the reward by name."""
    turns: int
    tests_passed: int
    tests: int
    ms: dict[str, float]
    """Duration of each stage in milliseconds."""
    error: str
    problem: str = ""
    """Why the trajectory cannot be read; otherwise empty."""


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its members."""

    row: GroupRow
    members: list[GroupMemberDetail]
    missing: list[int]
    """Samples that have not arrived: running if the group is open, otherwise given up."""


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn: a span of tokens of a segment."""

    kind: str
    """``prompt``, ``model`` or ``observation``."""
    index: int
    """Number of the model's turn, from 0 in the order in which replies ended; −1 for other turns."""
    start: int
    end: int
    text: str
    """The text; a long one is cut to 8,000 characters of its head and tail."""
    cut_chars: int
    tool: str
    exit_code: int | None
    ms: float
    role: str
    """``auxiliary`` or ``discarded`` if a harness's reply is not the agent's work, else empty."""
    malformed: bool
    mixed_prefix: bool
    cuts: int
    reward: float
    version: str
    """Version of the weights when the turn was requested."""
    sampled: int
    trained: int
    """Number of tokens with loss."""
    logprob_mean: Number
    logprob_gap_mean: Number
    logprob_gap_max: Number
    staleness_max: int | None
    at_s: Number
    """Start of the turn in the recording, in seconds."""
    recording_offset: int | None
    """Start of the turn in the recording's file, in bytes."""
    pictures: list[int]
    """Numbers of the pictures of what a browser showed after the turn's actions, or at first."""


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
    """A trajectory with its turns, tests and recording."""

    row: TrajectoryRow
    directory: str
    """See :attr:`RunProgress.directory`."""
    size: int
    """Number of samples of the group."""
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
    """Version of the weights in the step that used the trajectory; empty if none did."""
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
    """Number of tokens of the segment."""
    id: list[int]
    text: list[str]
    """A character that spans several tokens is at the last of them."""
    logprob: list[Number]
    """The engine's log-probability at the sampling temperature; None for tokens that were not sampled."""
    probability: list[Number]
    version: list[str]
    """Version of the weights that sampled the token; empty for other tokens."""
    staleness: list[int | None]
    """Staleness at the step that used the token, in optimizer steps."""
    use: list[TokenUse]
    learner_logprob: list[Number]
    """The learner's log-probability before the update."""
    logprob_gap: list[Number]
    """``learner_logprob − logprob``."""
    advantage: list[Number]


@dataclass(frozen=True, slots=True)
class ActivityTrack:
    """Activity of one engine, worker or learner."""

    name: str
    kind: str
    """``engine``, ``worker`` or ``learner``."""
    states: dict[str, list[float]]
    """State → for each time slot the mean number of episodes (worker) or requests (engine) in it, or a share
    (learner)."""


@dataclass(frozen=True, slots=True)
class ActivityTimeline:
    """The activity of all processes over a span of time."""

    since: float
    until: float
    slot_s: float
    tracks: list[ActivityTrack] = field(default_factory=list[ActivityTrack])


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The body of an error, and the data of the event ``gone``."""

    error: str
    """One line: what happened, why, and what to do."""
