"""The state of a run, which :mod:`launch.monitor.run_state.event_rules` updates.  Its size does not grow with the
run."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import zip_longest

from launch.monitor.run_state.event_text import LogLine
from protocol.run_directory.json_fields import Event, get_integer, get_text
from protocol.trajectory import TRAIN_PURPOSE

PHASES = ("nodes", "engine", "model", "warm_start", "evaluation_before", "training", "evaluation_after", "shutdown")
MAX_RUNNING, MAX_RECENT, MAX_SUSPECTS, MAX_GROUPS, MAX_LOG, MAX_POINTS = 4_096, 400, 8, 60, 120, 4_096
CURVES = (
    "reward_mean",
    "pass_rate",
    "loss",
    "grad_norm",
    "entropy",
    "kl_k1",
    "kl_k3",
    "parity_k3",
    "parity_check_k3",
    "clip_high",
    "clip_low",
    "clip_dual",
    "staleness_mean",
    "staleness_max",
    "trained_share",
    "tokens_per_s_sampled",
    "tokens_per_s_trained",
    "step_s",
    "wait_s",
    "pause_ms",
)
"""Metrics that are kept of every step; the others only of the last one."""


@dataclass(slots=True)
class RunHeader:
    """The identity, settings and outcome of a run."""

    id: str = ""
    recipe: str = ""
    mode: str = ""
    nodes: int = 0
    seed: int | None = None
    steps: int = 0
    """Planned number of steps; 0 while unknown."""
    url: str = ""
    max_staleness: float | None = None
    started_at: float | None = None
    last_start_at: float = 0.0
    """Time of the newest start."""
    finished_at: float | None = None
    ok: bool | None = None
    reason: str = ""
    starts: int = 0
    flow: str = "run"
    """Requested flow: ``run``, ``pause`` or ``drain``."""
    evaluates: bool = True


@dataclass(slots=True)
class PhaseSpan:
    """A phase of the run."""

    name: str
    since: float
    until: float | None = None
    detail: str = ""
    done: float = 0.0
    total: float = 0.0
    """Value of ``done`` at the end of the phase, in the phase's own unit; 0 if it has no measure."""


@dataclass(slots=True)
class EpisodeProgress:
    """The progress of one episode."""

    trajectory: str
    purpose: str
    group: int = -1
    sample: int = -1
    task: str = ""
    family: str = ""
    instruction: str = ""
    worker: str = ""
    started_at: float = 0.0
    turn: int = 0
    """Current turn, from 1; 0 before the first reply."""
    sampled: int = 0
    versions: tuple[int, int] = (-1, -1)
    tool: str = ""
    command: str = ""
    status: str = "running"
    reward: float | None = None
    ended_at: float | None = None
    ms: dict[str, float] = field(default_factory=dict[str, float])
    detail: str = ""


@dataclass(slots=True)
class GroupMember:
    sample: int
    trajectory: str = ""
    reward: float | None = None
    status: str = ""


@dataclass(slots=True)
class GroupState:
    group: int
    task: str = ""
    size: int = 0
    outcome: str = "open"
    members: dict[int, GroupMember] = field(default_factory=dict[int, GroupMember])


@dataclass(slots=True)
class MonitoredEngine:
    name: str
    node: str = ""
    state: str = "serving"
    version: int = -1
    pause_ms: float | None = None
    load_ms: float | None = None
    pause_ms_max: float = 0.0
    offloaded_s: float = 0.0
    """Seconds for which the engine's memory was offloaded for the learner."""
    loads: int = 0
    restarts: int = 0


@dataclass(slots=True)
class SandboxCounts:
    live: int = 0
    started: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class TaskImageCounts:
    """Number of training tasks by the state of their images."""

    tasks: int
    ready: int
    failed: int

    @property
    def pending(self) -> bool:
        """Whether an image is still to be made."""
        return self.ready + self.failed < self.tasks

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"images: {self.ready} of {self.tasks} ready{failed}"


@dataclass(slots=True)
class EvaluationProgress:
    done: int = 0
    total: int = 0
    passed: int = 0


@dataclass(slots=True)
class EvaluationScore:
    name: str
    pass_at_1: float
    stderr: float | None = None
    n: int = 0
    greedy: float | None = None
    """pass@1 with greedy decoding, if it was measured."""
    at: float = 0.0
    """Time at which it finished."""
    step: int | None = None
    """Step of the evaluated weights, if known."""


@dataclass(slots=True)
class RunTotals:
    """Totals since the start of the run."""

    finished: int = 0
    isolation: dict[str, int] = field(default_factory=dict[str, int])
    """Number of graded episodes by whose programs ran their tests."""
    suspicious: int = 0
    """Number of episodes with signs of cheating."""
    acknowledged: int = 0
    superseded: int = 0
    failed: dict[str, int] = field(default_factory=dict[str, int])
    """Number of infrastructure failures by reason."""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Number of dropped acknowledged trajectories by reason, without those of the learner's steps (in the curve)."""
    trained: int = 0
    """Number of trained trajectories; filled from the curve, as a step may be taken back."""
    published: int = 0
    """Number of weight versions that the learner published."""
    refused_messages: int = 0
    lost_events: int = 0
    """Number of events that processes could not write."""
    deaths: int = 0
    rewinds: int = 0


@dataclass(frozen=True, slots=True)
class StepSums:
    """Counts of one step, or of all steps up to one."""

    trained: int = 0
    """Number of trained trajectories."""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Number of dropped trajectories of trained batches by reason."""
    staleness_histogram: tuple[float, ...] = ()
    """Number of tokens with loss, by staleness in steps."""

    def __add__(self, other: StepSums) -> StepSums:
        staleness = tuple(map(sum, zip_longest(self.staleness_histogram, other.staleness_histogram, fillvalue=0.0)))
        return StepSums(self.trained + other.trained, add_counts(self.dropped, other.dropped), staleness)


def add_counts(some: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Return the sum of two counts by reason, without zeros."""
    return dict(Counter(some) + Counter(more))


@dataclass(slots=True)
class CurvePoint:
    """One step, with running sums up to it."""

    step: int
    values: dict[str, float]
    """Metrics of the step: all of the newest one, :data:`CURVES` of the others."""
    trained_tokens: int
    masked_tokens: int
    sampled_tokens: int
    sums: StepSums

    def keep_curves(self) -> None:
        """Forget the metrics without a curve: they are most of a step's memory."""
        self.values = {name: self.values[name] for name in CURVES if name in self.values}


@dataclass(slots=True)
class MetricCurve:
    """The metrics of the current steps, thinned evenly when long; the last point is always kept."""

    points: list[CurvePoint] = field(default_factory=list[CurvePoint])
    _every: int = 1

    def rewind(self, step: int) -> None:
        """Remove the steps after ``step``, which are taken again."""
        while self.points and self.points[-1].step > step:
            self.points.pop()

    def append_step(self, step: int, values: dict[str, float], sums: StepSums) -> None:
        """Append a step; a step that is taken again replaces its earlier point and all later ones."""
        self.rewind(step - 1)
        last = self.points[-1] if self.points else None
        if len(self.points) >= MAX_POINTS:
            self._every *= 2
            self.points = [point for index, point in enumerate(self.points[:-1]) if index % 2 == 0]
        elif last is not None and len(self.points) > 1 and self._every > 1 and last.step % self._every:
            self.points.pop()
        if self.points:
            self.points[-1].keep_curves()
        self.points.append(
            CurvePoint(
                step,
                values,
                (last.trained_tokens if last else 0) + int(values.get("trained_tokens", 0)),
                (last.masked_tokens if last else 0) + int(values.get("masked_tokens", 0)),
                (last.sampled_tokens if last else 0) + int(values.get("sampled_tokens", 0)),
                last.sums + sums if last else sums,
            )
        )

    @property
    def last(self) -> CurvePoint | None:
        return self.points[-1] if self.points else None


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that was raised and is not resolved yet."""

    name: str
    text: str
    health: bool
    """Whether something is wrong; otherwise something could be better."""
    since: float


@dataclass(slots=True)
class MonitorState:
    """Everything that the monitor knows of a run, besides its archive."""

    header: RunHeader = field(default_factory=RunHeader)
    phases: list[PhaseSpan] = field(default_factory=list[PhaseSpan])
    running: dict[str, EpisodeProgress] = field(default_factory=dict[str, EpisodeProgress])
    recent: deque[EpisodeProgress] = field(default_factory=lambda: deque[EpisodeProgress](maxlen=MAX_RECENT))
    suspects: deque[EpisodeProgress] = field(default_factory=lambda: deque[EpisodeProgress](maxlen=MAX_SUSPECTS))
    """Recent episodes with signs of cheating."""
    groups: dict[int, GroupState] = field(default_factory=dict[int, GroupState])
    curve: MetricCurve = field(default_factory=MetricCurve)
    evaluations: dict[str, EvaluationScore] = field(default_factory=dict[str, EvaluationScore])
    evaluating: dict[str, EvaluationProgress] = field(default_factory=dict[str, EvaluationProgress])
    engines: dict[str, MonitoredEngine] = field(default_factory=dict[str, MonitoredEngine])
    nodes: set[str] = field(default_factory=set[str])
    workers: set[str] = field(default_factory=set[str])
    sandboxes: dict[str, SandboxCounts] = field(default_factory=dict[str, SandboxCounts])
    """Writer of ``sandbox.counted`` → its counts."""
    node_of_worker: dict[str, str] = field(default_factory=dict[str, str])
    """Writer of ``sandbox.counted`` → its node."""
    images: TaskImageCounts | None = None
    """None if no image was missing since the newest start."""
    totals: RunTotals = field(default_factory=RunTotals)
    alerts: dict[str, OpenAlert] = field(default_factory=dict[str, OpenAlert])
    """Alert name → the alert that is still open."""
    log: deque[LogLine] = field(default_factory=lambda: deque[LogLine](maxlen=MAX_LOG))
    last_event_at: float | None = None

    def find_phase(self, name: str) -> PhaseSpan | None:
        return next((span for span in reversed(self.phases) if span.name == name), None)

    def set_phase_progress(self, name: str, done: float, total: float) -> None:
        if (span := self.find_phase(name)) is not None:
            span.done, span.total = done, total

    def open_episode(self, event: Event, t: float) -> EpisodeProgress:
        name = get_text(event, "trajectory")
        if name not in self.running:
            self.running[name] = EpisodeProgress(name, name.rpartition("-g")[0] or TRAIN_PURPOSE, started_at=t)
            if len(self.running) > MAX_RUNNING:
                self.running.pop(next(iter(self.running)))
        return self.running[name]

    def group(self, event: Event) -> GroupState:
        number_ = get_integer(event, "group", -1)
        group = self.groups.get(number_)
        if group is None:
            group = self.groups[number_] = GroupState(number_)
            if len(self.groups) > MAX_GROUPS:
                self.groups.pop(min(self.groups))  # may be this very group, if it is a late sample of an old one
        return group

    def end_episode(self, event: Event, t: float, status: str) -> EpisodeProgress:
        session = self.open_episode(event, t)
        self.running.pop(session.trajectory, None)
        session.status, session.ended_at = status, t
        self.recent.append(session)
        return session

    def engine(self, event: Event) -> MonitoredEngine:
        name = get_text(event, "engine") or get_text(event, "writer")
        engine = self.engines.setdefault(name, MonitoredEngine(name))
        engine.node = get_text(event, "node", engine.node)
        return engine
