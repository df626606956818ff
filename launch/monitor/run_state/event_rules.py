"""The rules that update a run's state from its events and metrics.  Pure.

Events of different processes are only nearly in order, so each rule tolerates an event that comes early, late or never.
"""
# ruff: noqa: ARG001 - one signature for every rule

from __future__ import annotations

from collections.abc import Callable

from launch.monitor.run_state.event_text import describe_event
from launch.monitor.run_state.model import (
    EvaluationProgress,
    EvaluationScore,
    GroupMember,
    MonitorState,
    OpenAlert,
    PhaseSpan,
    SandboxCounts,
    StepSums,
    TaskImageCounts,
)
from protocol.groups import OUTCOME_DROP_REASONS
from protocol.plain_text import sanitize_line, sanitize_text
from protocol.run_directory.actor_names import EVALUATION_ENGINE, EVALUATION_WORKER
from protocol.run_directory.json_fields import (
    Event,
    get_integer,
    get_list,
    get_mapping,
    get_number,
    get_numbers,
    get_text,
)
from protocol.trajectory import TRAIN_PURPOSE, is_training_trajectory

EventRule = Callable[[MonitorState, Event, float], None]
"""A rule updates the state with one event at its time."""


def apply_event(state: MonitorState, event: Event) -> None:
    """Update the state with one event; an unknown kind only enters the log."""
    t = get_number(event, "t") or 0.0
    state.last_event_at = max(state.last_event_at or 0.0, t)
    if (rule := _RULES.get(get_text(event, "kind"))) is not None:
        rule(state, event, t)
    if (line := describe_event(event)) is not None and line.level != "detail":
        state.log.append(line)


def apply_metrics(state: MonitorState, line: Event) -> None:
    """Update the state with one line of metrics.jsonl (:class:`launch.run_records.metrics_log.MetricsLog`)."""
    if "rewound_to" in line:
        state.totals.rewinds += 1
        state.curve.rewind(get_integer(line, "rewound_to"))
        return
    values = {key: float(value) for key, value in line.items() if isinstance(value, int | float)}
    dropped = {reason: count for reason, count in get_mapping(line, "dropped").items() if isinstance(count, int)}
    sums = StepSums(get_integer(line, "trained_trajectories"), dropped, tuple(get_numbers(line, "staleness_histogram")))
    state.curve.append_step(get_integer(line, "step"), values, sums)
    state.last_event_at = max(state.last_event_at or 0.0, values.get("t", 0.0))
    state.set_phase_progress("training", get_integer(line, "step"), state.header.steps)


_GROUP_DROPS = {str(outcome): str(reason) for outcome, reason in OUTCOME_DROP_REASONS.items()}


def _run_started(state: MonitorState, event: Event, t: float) -> None:
    header = state.header
    header.id, header.recipe = get_text(event, "run", header.id), get_text(event, "recipe", header.recipe)
    header.mode, header.url = get_text(event, "mode", header.mode), get_text(event, "url", header.url)
    header.nodes, header.seed = get_integer(event, "nodes"), get_integer(event, "seed")
    header.steps = get_integer(event, "steps")
    header.flow, header.evaluates = "run", event.get("evaluates") is not False
    bound = get_number(event, "max_staleness")
    header.max_staleness = header.max_staleness if bound is None else bound
    header.started_at = t if header.started_at is None else header.started_at
    header.last_start_at = t
    header.finished_at, header.ok, header.reason = None, None, ""
    header.starts += 1
    state.running.clear()
    state.engines.clear()
    state.sandboxes.clear()
    state.images = None
    state.phases.clear()
    state.alerts.clear()


def _run_phase(state: MonitorState, event: Event, t: float) -> None:
    name, detail = get_text(event, "phase"), get_text(event, "detail")
    last = state.phases[-1] if state.phases else None
    if last is not None and last.name == name:
        last.detail = detail
        return
    if last is not None:
        last.until = t
    state.phases.append(PhaseSpan(name, t, detail=detail))
    del state.phases[:-32]


def _run_finished(state: MonitorState, event: Event, t: float) -> None:
    state.header.finished_at, state.header.ok = t, event.get("ok") is True
    state.header.reason = get_text(event, "reason")
    if state.phases:
        state.phases[-1].until = t
    for session in list(state.running.values()):
        session.status, session.ended_at = "ended_with_run", t
        state.recent.append(session)
    state.running.clear()
    for counts in state.sandboxes.values():
        counts.live = counts.waiting = 0


def _warm_start(state: MonitorState, event: Event, t: float) -> None:
    state.set_phase_progress("warm_start", get_integer(event, "step"), get_integer(event, "steps"))


def _evaluation_progress(state: MonitorState, event: Event, t: float) -> None:
    progress = state.evaluating.setdefault(get_text(event, "name"), EvaluationProgress())
    progress.done, progress.total = get_integer(event, "done"), get_integer(event, "total")
    progress.passed = get_integer(event, "passed")
    if state.phases and state.phases[-1].name.startswith("evaluation"):
        state.phases[-1].done, state.phases[-1].total = progress.done, progress.total


def _evaluation_finished(state: MonitorState, event: Event, t: float) -> None:
    name, score = get_text(event, "name"), get_number(event, "pass_at_1") or 0.0
    state.evaluations[name] = EvaluationScore(
        name,
        score,
        get_number(event, "stderr"),
        get_integer(event, "n"),
        get_number(event, "greedy"),
        t,
        get_integer(event, "step") if "step" in event else None,
    )
    _evaluation_ended(state, event, t)


def _evaluation_ended(state: MonitorState, event: Event, t: float) -> None:
    """Remove the state of an evaluation, and the engine and worker of an online one."""
    state.evaluating.pop(get_text(event, "name"), None)
    if "version" in event:
        state.engines.pop(EVALUATION_ENGINE, None)
        if (counts := state.sandboxes.get(EVALUATION_WORKER)) is not None:
            counts.live = counts.waiting = 0


def _node_up(state: MonitorState, event: Event, t: float) -> None:
    state.nodes.add(get_text(event, "name") or get_text(event, "node"))


def _node_down(state: MonitorState, event: Event, t: float) -> None:
    """Mark the node's engines and sandboxes as gone, as no other event does."""
    node = get_text(event, "name")
    state.nodes.discard(node)
    for engine in state.engines.values():
        if engine.node == node:
            engine.state = "down"
    for worker, counts in state.sandboxes.items():
        if state.node_of_worker.get(worker) == node:
            counts.live = counts.waiting = 0


def _worker_started(state: MonitorState, event: Event, t: float) -> None:
    state.workers.add(get_text(event, "worker"))


def _flow(state: MonitorState, event: Event, t: float) -> None:
    state.header.flow = get_text(event, "flow")


def _group_opened(state: MonitorState, event: Event, t: float) -> None:
    group = state.group(event)
    group.task, group.size = get_text(event, "task"), get_integer(event, "size")


def _group_closed(state: MonitorState, event: Event, t: float) -> None:
    group = state.group(event)
    group.task, group.outcome = get_text(event, "task", group.task), get_text(event, "outcome")
    group.size = max(group.size, get_integer(event, "size"))
    for sample, reward in enumerate(get_list(event, "rewards")):
        if isinstance(reward, int | float):  # null if the sample was given up
            group.members.setdefault(sample, GroupMember(sample)).reward = float(reward)
    if (reason := _GROUP_DROPS.get(group.outcome)) is not None:
        state.totals.dropped[reason] = state.totals.dropped.get(reason, 0) + len(get_numbers(event, "rewards"))


def _episode_started(state: MonitorState, event: Event, t: float) -> None:
    session = state.open_episode(event, t)
    session.group, session.sample = get_integer(event, "group", -1), get_integer(event, "sample", -1)
    session.task, session.family = get_text(event, "task"), get_text(event, "family")
    session.instruction, session.worker = (
        sanitize_text(get_text(event, "instruction")[:2_000]),
        get_text(event, "worker"),
    )
    session.started_at = t
    if session.purpose == TRAIN_PURPOSE:
        state.group(event).members.setdefault(
            session.sample, GroupMember(session.sample)
        ).trajectory = session.trajectory


def _episode_tool(state: MonitorState, event: Event, t: float) -> None:
    session = state.open_episode(event, t)
    session.tool, session.command = (
        sanitize_text(get_text(event, "tool")),
        sanitize_text(get_text(event, "command")[:400]),
    )


def _episode_turn(state: MonitorState, event: Event, t: float) -> None:
    session = state.open_episode(event, t)
    session.turn = max(session.turn, get_integer(event, "turn", -1) + 1)
    session.sampled = max(session.sampled, get_integer(event, "sampled"))
    if "tool" in event:
        session.tool, session.command = (
            sanitize_text(get_text(event, "tool")),
            sanitize_text(get_text(event, "command")[:400]),
        )
    if len(versions := get_numbers(event, "versions")) == 2:
        session.versions = (int(versions[0]), int(versions[1]))


def _episode_finished(state: MonitorState, event: Event, t: float) -> None:
    session = state.end_episode(event, t, get_text(event, "status"))
    session.reward, session.sampled = get_number(event, "reward"), get_integer(event, "sampled", session.sampled)
    session.turn = get_integer(event, "turns", session.turn)
    timings = get_mapping(event, "ms")
    session.ms = {key: float(value) for key, value in timings.items() if isinstance(value, int | float)}
    state.totals.finished += 1
    if isolation := get_text(event, "isolation"):
        state.totals.isolation[isolation] = state.totals.isolation.get(isolation, 0) + 1


def _episode_suspicious(state: MonitorState, event: Event, t: float) -> None:
    state.totals.suspicious += 1
    suspect = state.open_episode(event, t)
    suspect.detail = sanitize_text("; ".join(map(str, get_list(event, "why")))[:400])
    state.suspects.append(suspect)


def _episode_failed(state: MonitorState, event: Event, t: float) -> None:
    reason, trajectory = get_text(event, "reason", "unexpected"), get_text(event, "trajectory")
    for name in [name for name in state.running if name == trajectory or name.startswith(f"{trajectory}-a")]:
        state.end_episode({"trajectory": name}, t, f"infra:{reason}").detail = sanitize_text(
            get_text(event, "detail")[:400]
        )
    if is_training_trajectory(trajectory):
        state.totals.failed[reason] = state.totals.failed.get(reason, 0) + 1


def _episode_cancelled(state: MonitorState, event: Event, t: float) -> None:
    if get_text(event, "trajectory") in state.running:
        state.end_episode(event, t, "cancelled")


def _stored(state: MonitorState, event: Event, t: float) -> None:
    state.totals.acknowledged += 1
    if get_text(event, "outcome") == "superseded":
        state.totals.superseded += 1
        return
    sample = get_integer(event, "sample", -1)
    member = state.group(event).members.setdefault(sample, GroupMember(sample))
    member.trajectory = member.trajectory or get_text(event, "trajectory")
    member.status = get_text(event, "status")
    member.reward = get_number(event, "reward")


def _published(state: MonitorState, event: Event, t: float) -> None:
    state.totals.published += 1


def _engine_loaded(state: MonitorState, event: Event, t: float) -> None:
    engine = state.engine(event)
    engine.version, engine.loads, engine.state = get_integer(event, "version", -1), engine.loads + 1, "serving"
    engine.pause_ms, engine.load_ms = get_number(event, "pause_ms"), get_number(event, "load_ms")
    engine.pause_ms_max = max(engine.pause_ms_max, engine.pause_ms or 0.0)


def _engine_onloaded(state: MonitorState, event: Event, t: float) -> None:
    engine = state.engine(event)
    engine.version, engine.loads = get_integer(event, "version", -1), engine.loads + (event.get("new") is True)
    engine.offloaded_s += get_number(event, "offloaded_s") or 0.0
    if engine.state == "offloaded":  # otherwise its server died meanwhile
        engine.state = "serving"


def _engine_load_failed(state: MonitorState, event: Event, t: float) -> None:
    if (pause := get_number(event, "pause_ms")) is not None:  # absent if the engine never paused
        engine = state.engine(event)
        engine.pause_ms_max = max(engine.pause_ms_max, pause)


def _engine_state(name: str) -> EventRule:
    def rule(state: MonitorState, event: Event, t: float) -> None:
        engine = state.engine(event)
        engine.state = name
        engine.version = get_integer(event, "version", engine.version)

    return rule


def _engine_restarted(state: MonitorState, event: Event, t: float) -> None:
    engine = state.engine(event)
    engine.state, engine.restarts = "serving", engine.restarts + 1


def _engine_died(state: MonitorState, event: Event, t: float) -> None:
    state.engine(event).state = "down"
    state.totals.deaths += 1


def _sandbox_counted(state: MonitorState, event: Event, t: float) -> None:
    counts = SandboxCounts(get_integer(event, "live"), get_integer(event, "started"), get_integer(event, "waiting"))
    worker = get_text(event, "writer")
    state.sandboxes[worker], state.node_of_worker[worker] = counts, get_text(event, "node")


def _images_counted(state: MonitorState, event: Event, t: float) -> None:
    state.images = TaskImageCounts(
        get_integer(event, "tasks"), get_integer(event, "ready"), get_integer(event, "failed")
    )


def _message_refused(state: MonitorState, event: Event, t: float) -> None:
    state.totals.refused_messages += 1


def _events_dropped(state: MonitorState, event: Event, t: float) -> None:
    state.totals.lost_events += get_integer(event, "events")


def _batch_skipped(state: MonitorState, event: Event, t: float) -> None:
    reason = get_text(event, "reason")
    state.totals.dropped[reason] = state.totals.dropped.get(reason, 0) + get_integer(event, "episodes")


def _alert_raised(state: MonitorState, event: Event, t: float) -> None:
    name = get_text(event, "name")
    state.alerts[name] = OpenAlert(name, sanitize_line(get_text(event, "text")), event.get("health") is not False, t)


def _alert_resolved(state: MonitorState, event: Event, t: float) -> None:
    state.alerts.pop(get_text(event, "name"), None)


def _process_died(state: MonitorState, event: Event, t: float) -> None:
    state.totals.deaths += 1


_RULES: dict[str, EventRule] = {
    "run.started": _run_started,
    "run.phase": _run_phase,
    "run.finished": _run_finished,
    "warm_start.progress": _warm_start,
    "evaluation.progress": _evaluation_progress,
    "evaluation.finished": _evaluation_finished,
    "evaluation.failed": _evaluation_ended,
    "evaluation.aborted": _evaluation_ended,
    "node.up": _node_up,
    "node.down": _node_down,
    "worker.started": _worker_started,
    "scheduler.flow": _flow,
    "group.opened": _group_opened,
    "group.closed": _group_closed,
    "episode.started": _episode_started,
    "episode.turn": _episode_turn,
    "episode.tool": _episode_tool,
    "episode.finished": _episode_finished,
    "episode.failed": _episode_failed,
    "episode.cancelled": _episode_cancelled,
    "episode.suspicious": _episode_suspicious,
    "trajectory.stored": _stored,
    "weights.published": _published,
    "engine.loaded": _engine_loaded,
    "engine.load_failed": _engine_load_failed,
    "engine.offloaded": _engine_state("offloaded"),
    "engine.onloaded": _engine_onloaded,
    "engine.started": _engine_state("serving"),
    "engine.died": _engine_died,
    "engine.draining": _engine_state("draining"),
    "engine.drained": _engine_state("restarting"),
    "engine.restarted": _engine_restarted,
    "sandbox.counted": _sandbox_counted,
    "images.counted": _images_counted,
    "message.refused": _message_refused,
    "events.dropped": _events_dropped,
    "process.died": _process_died,
    "process.hung": _process_died,
    "batch.skipped": _batch_skipped,
    "alert.raised": _alert_raised,
    "alert.resolved": _alert_resolved,
}
