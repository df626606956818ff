"""The view of a run's state: the response of ``/api/runs/RUN/state`` and ``--json``, and the input of all displays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from launch.monitor.run_state.event_text import LogLine
from launch.monitor.run_state.model import (
    CURVES,
    PHASES,
    CurvePoint,
    EpisodeProgress,
    EvaluationProgress,
    EvaluationScore,
    GroupMember,
    GroupState,
    MonitoredEngine,
    MonitorState,
    OpenAlert,
    PhaseSpan,
    RunHeader,
    RunTotals,
    SandboxCounts,
    StepSums,
    TaskImageCounts,
    add_counts,
)
from protocol.run_directory.run_status import RunStatus
from protocol.run_directory.run_tail import TailStatistics
from protocol.weights import format_version

SHOWN_RUNNING, SHOWN_RECENT, SHOWN_GROUPS, SHOWN_POINTS = 64, 40, 24, 480


@dataclass(frozen=True, slots=True)
class GroupSummary:
    group: int
    task: str
    size: int
    outcome: str
    members: list[GroupMember]


@dataclass(frozen=True, slots=True)
class EngineSummary:
    name: str
    node: str
    state: str
    version: str
    pause_ms: float | None
    load_ms: float | None
    pause_ms_max: float
    offloaded_s: float
    loads: int
    restarts: int


@dataclass(frozen=True, slots=True)
class TokenTotals:
    sampled: int
    trained: int
    masked: int


@dataclass(frozen=True, slots=True)
class RunView:
    """The present state of a run."""

    run: RunHeader
    status: RunStatus
    """Status as far as events tell; :func:`with_status` replaces it by that of the directory."""
    phase: str
    """Newest phase; empty before the first."""
    phases: list[PhaseSpan]
    order: Sequence[str]
    """Names of all phases in order, including future ones."""
    step: int
    latest: dict[str, float]
    """Metrics of the last step."""
    curves: dict[str, list[float | None]]
    """Metric → values over the steps, thinned evenly; the first column is ``step``."""
    staleness_histogram: list[float]
    """Number of tokens with loss, by staleness in steps, over all current steps."""
    evaluations: list[EvaluationScore]
    evaluating: dict[str, EvaluationProgress]
    running: list[EpisodeProgress]
    running_count: int
    recent: list[EpisodeProgress]
    """Recently ended episodes, newest first."""
    suspects: list[EpisodeProgress]
    """Recent episodes with signs of cheating, newest first; ``detail`` is why."""
    groups: list[GroupSummary]
    """Recent groups, newest first."""
    tokens: TokenTotals
    totals: RunTotals
    engines: list[EngineSummary]
    blocked_share: float | None
    """Share of training time in which engines were offloaded for the learner; None if they never were."""
    published: int
    """Number of weight versions that the learner published."""
    nodes: int
    workers: int
    sandboxes: SandboxCounts
    images: TaskImageCounts | None
    """Training tasks whose images are ready; None if none was missing since the newest start."""
    alerts: list[OpenAlert]
    """Open alerts: health alerts first, then the oldest first."""
    log: list[LogLine]
    """Recent log lines, oldest first."""
    last_event_at: float | None
    reading: dict[str, int]
    cursor: str
    """Cursor from which ``/api/runs/RUN/events?cursor=`` continues."""
    empty: bool
    """Whether the run directory has nothing to show yet."""


def with_status(view: RunView, status: RunStatus) -> RunView:
    """Return the view of a run with the status of its directory; without a driver nothing runs in it."""
    if status is RunStatus.RUNNING:
        return replace(view, status=status)
    sandboxes = replace(view.sandboxes, live=0, waiting=0)
    return replace(view, status=status, running=[], running_count=0, sandboxes=sandboxes)


def encode_run_view(view: RunView) -> bytes:
    return orjson.dumps(view, option=orjson.OPT_NON_STR_KEYS)


def build_run_view(state: MonitorState, statistics: TailStatistics, cursor: str) -> RunView:
    last = state.curve.last
    sums = last.sums if last else StepSums()
    return RunView(
        run=state.header,
        status=_status(state),
        phase=state.phases[-1].name if state.phases else "",
        phases=list(state.phases),
        order=_order(state),
        step=last.step if last else 0,
        latest=last.values if last else {},
        curves=_curves(state.curve.points),
        staleness_histogram=list(sums.staleness_histogram),
        evaluations=list(state.evaluations.values()),
        evaluating=dict(state.evaluating),
        running=list(state.running.values())[-SHOWN_RUNNING:],
        running_count=len(state.running),
        recent=list(state.recent)[: -SHOWN_RECENT - 1 : -1],
        suspects=list(state.suspects)[::-1],
        groups=[_group(state.groups[key]) for key in sorted(state.groups, reverse=True)[:SHOWN_GROUPS]],
        tokens=TokenTotals(
            last.sampled_tokens if last else 0, last.trained_tokens if last else 0, last.masked_tokens if last else 0
        ),
        totals=replace(state.totals, trained=sums.trained, dropped=add_counts(state.totals.dropped, sums.dropped)),
        engines=[_engine(engine) for _, engine in sorted(state.engines.items())],
        blocked_share=_blocked_share(state),
        published=state.totals.published,
        nodes=len(state.nodes),
        workers=len(state.workers),
        sandboxes=_sandboxes(state),
        images=state.images,
        alerts=sorted(state.alerts.values(), key=lambda alert: (not alert.health, alert.since)),
        log=list(state.log),
        last_event_at=state.last_event_at,
        reading=statistics._asdict(),
        cursor=cursor,
        empty=statistics.lines == statistics.damaged,
    )


def _status(state: MonitorState) -> RunStatus:
    if state.header.ok is None:
        return RunStatus.RUNNING
    return RunStatus.FINISHED if state.header.ok else RunStatus.STOPPED


def _order(state: MonitorState) -> list[str]:
    """Return the phases so far and then the future ones."""
    visited = list(dict.fromkeys(span.name for span in state.phases))
    last = max((PHASES.index(name) for name in visited if name in PHASES), default=-1)
    coming = [name for name in PHASES[last + 1 :] if state.header.evaluates or not name.startswith("evaluation")]
    return visited + [name for name in coming if name not in visited]


def _curves(points: list[CurvePoint]) -> dict[str, list[float | None]]:
    stride = max(1, -(-len(points) // SHOWN_POINTS))
    shown = points[::-1][::stride][::-1]
    columns: dict[str, list[float | None]] = {"step": [float(point.step) for point in shown]}
    for name in CURVES:
        columns[name] = [_short(point.values.get(name)) for point in shown]
    return columns


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _group(group: GroupState) -> GroupSummary:
    members = [group.members[sample] for sample in sorted(group.members)]
    return GroupSummary(group.group, group.task, group.size, group.outcome, members)


def _engine(engine: MonitoredEngine) -> EngineSummary:
    return EngineSummary(
        engine.name,
        engine.node,
        engine.state,
        format_version(engine.version),
        engine.pause_ms,
        engine.load_ms,
        engine.pause_ms_max,
        round(engine.offloaded_s, 3),
        engine.loads,
        engine.restarts,
    )


def _blocked_share(state: MonitorState) -> float | None:
    offloaded = [engine.offloaded_s for engine in state.engines.values()]
    span = next((span for span in state.phases if span.name == "training"), None)
    if span is None or not any(offloaded):
        return None
    seconds = (span.until or state.last_event_at or span.since) - span.since
    return _short(min(1.0, sum(offloaded) / len(offloaded) / seconds)) if seconds > 0 else None


def _sandboxes(state: MonitorState) -> SandboxCounts:
    counts = state.sandboxes.values()
    return SandboxCounts(
        sum(count.live for count in counts), sum(count.started for count in counts), sum(c.waiting for c in counts)
    )
