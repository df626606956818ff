"""The state of a run, read from its files: lines for people, one object for scripts.

Text written by agents (commands, tool names) is left out by default: a script or an agent that steers a run must not
take instructions from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from launch.config import RunConfig
from launch.control.requests import list_request_files, read_request
from launch.monitor.archive.run_cards import read_run_card
from launch.monitor.run_state.event_text import RUN_FLOWS
from launch.monitor.run_state.model import EpisodeProgress, MonitorState, OpenAlert
from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import EngineSummary
from launch.run_records.config_changes import ConfigChange, read_changes
from launch.run_records.retunable_keys import RetunableValue, retunable_values
from launch.run_records.stored_config import find_resume_command, load_stored_config
from protocol.cli.formatting import humanize_name
from protocol.errors import UserError
from protocol.run_directory.layout import NoSuchRunError, is_run_directory
from protocol.run_directory.run_status import RunStatus, is_running, read_run_status

_SHOWN = (
    "reward_mean",
    "pass_rate",
    "loss",
    "entropy",
    "staleness_mean",
    "staleness_max",
    "tokens_per_s_sampled",
    "step_s",
    "wait_s",
)


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request without an answer yet."""

    request: str
    action: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunOverview:
    run: str
    as_of: float | None
    """Time of the newest event."""
    status: RunStatus
    phase: str
    """Newest phase, in which a run without a driver ended; empty before the first."""
    flow: str
    """``run``, ``pause`` or ``drain``."""
    step: int
    steps: int
    latest: dict[str, float]
    """Metrics of the newest step."""
    running: int
    """Number of rollouts in flight."""
    groups: dict[str, int]
    """Outcome → number of the newest groups."""
    trained: int
    dropped: dict[str, int]
    failed: dict[str, int]
    """Infrastructure failures by reason."""
    engines: list[EngineSummary]
    sandboxes: int
    alerts: list[OpenAlert]
    """Open alerts, health first."""
    pending_requests: list[PendingRequest]
    in_flight: int | None
    """Maximum number of rollouts at once; None if the run's record is unreadable."""
    retunable: dict[str, RetunableValue]
    """Keys that ``retune`` changes, with their current values."""
    config_changes: list[ConfigChange]
    url: str
    reason: str
    """Reason why the run ended."""
    resume_command: str
    """Command that continues a run without a driver; empty for others."""
    problem: str
    """Reason why the run's record is unreadable, one line."""


@dataclass(frozen=True, slots=True)
class RunningRollout:
    trajectory: str
    group: int
    sample: int
    task: str
    worker: str
    turn: int
    sampled_tokens: int
    seconds: float
    content: str | None
    """Command of the agent that is running; None by default."""


def read_status(run_dir: Path) -> RunOverview:
    """Read the state of a run.  Raises NoSuchRunError."""
    store = _read(run_dir)
    view = store.view()
    status, config, card = read_run_status(run_dir), _config(run_dir), read_run_card(run_dir)
    alive = status is RunStatus.RUNNING
    return RunOverview(
        run=view.run.id,
        as_of=view.last_event_at,
        status=status,
        phase=view.phase,
        flow=view.run.flow,
        step=view.step,
        steps=view.run.steps,
        latest={name: view.latest[name] for name in _SHOWN if name in view.latest},
        running=len(store.state.running) if alive else 0,
        groups=dict(Counter(group.outcome for group in store.state.groups.values())),
        trained=view.totals.trained,
        dropped=view.totals.dropped,
        failed=view.totals.failed,
        engines=view.engines,
        sandboxes=view.sandboxes.live,
        alerts=view.alerts,
        pending_requests=_pending_requests(run_dir),
        in_flight=config.in_flight if config is not None else None,
        retunable=retunable_values(config) if config is not None else {},
        config_changes=read_changes(run_dir),
        url=view.run.url if alive else "",
        reason=view.run.reason,
        resume_command=find_resume_command(run_dir) if status is RunStatus.STOPPED and not card.problem else "",
        problem=card.problem,
    )


def read_rollouts(run_dir: Path, *, content: bool) -> list[RunningRollout]:
    """Return the rollouts in flight, longest first.  Raises NoSuchRunError."""
    state = _read(run_dir).state
    if not is_running(run_dir):
        return []
    found = [_rollout(session, state, content=content) for session in state.running.values()]
    return sorted(found, key=lambda rollout: -rollout.seconds)


def _rollout(session: EpisodeProgress, state: MonitorState, *, content: bool) -> RunningRollout:
    return RunningRollout(
        session.trajectory,
        session.group,
        session.sample,
        session.task,
        session.worker,
        session.turn,
        session.sampled,
        round(max(0.0, (state.last_event_at or session.started_at) - session.started_at), 1),
        strip_control_characters(session.command) if content else None,
    )


def strip_control_characters(text: str) -> str:
    """Return ``text``, which an agent may have written, without terminal control characters."""
    return "".join(char if char.isprintable() else "�" for char in text.replace("\n", "⏎").replace("\t", " "))


def format_status(status: RunOverview) -> list[str]:
    """Return the state as lines for people."""
    alive = status.status is RunStatus.RUNNING
    phase = f", {humanize_name(status.phase)}" if alive and status.phase else ""
    flow = "" if status.flow == "run" or not alive else f", {RUN_FLOWS.get(status.flow, status.flow)}"
    ended = f": {status.reason}" if status.reason and not alive else ""
    of = f"/{status.steps}" if status.steps else ""
    lines = [f"{status.run}: {status.status}{phase}{flow}{ended} · step {status.step}{of} · {status.running} rollouts"]
    if status.latest:
        lines.append("newest step: " + " · ".join(f"{name} {value:.4g}" for name, value in status.latest.items()))
    counted = [("trained", status.trained), *sorted(status.dropped.items())]
    failed = [(f"infra {name}", count) for name, count in sorted(status.failed.items())]
    lines.append("trajectories: " + ", ".join(f"{count:,} {name}" for name, count in (*counted, *failed)))
    if alive:
        engines = [f"{engine.name} {engine.state} at {engine.version}" for engine in status.engines]
        most = [] if status.in_flight is None else [f"at most {status.in_flight} rollouts in flight"]
        lines.append(", ".join([*engines, f"{status.sandboxes} sandboxes", *most]))
    lines += [f"! {alert.text}" for alert in status.alerts]
    lines += [f"changed: {each.key} = {each.after} from step {each.first_step} on" for each in status.config_changes]
    lines += [f"pending: {each.action}" for each in status.pending_requests]
    lines += [f"! {status.problem}"] if status.problem else []
    lines += [f"live monitor: {status.url}"] if status.url else []
    return [*lines, *([f"to continue it: {status.resume_command}"] if status.resume_command else [])]


def format_rollouts(rollouts: list[RunningRollout]) -> list[str]:
    lines = [
        f"{each.trajectory}  {each.task}  {each.worker}  turn {each.turn}  {each.sampled_tokens} tokens  "
        f"{each.seconds:.0f} s" + (f"  {each.content}" if each.content else "")
        for each in rollouts
    ]
    return lines or ["no rollout is running"]


def _config(run_dir: Path) -> RunConfig | None:
    try:
        return load_stored_config(run_dir)
    except UserError:
        return None


def _read(run_dir: Path) -> RunStore:
    if not is_run_directory(run_dir):
        raise NoSuchRunError(run_dir)
    store = RunStore(run_dir)
    store.catch_up()
    return store


def _pending_requests(run_dir: Path) -> list[PendingRequest]:
    found: list[PendingRequest] = []
    for path in list_request_files(run_dir):
        try:
            request = read_request(path)
        except UserError:
            continue  # answered in the meantime, or damaged
        found.append(PendingRequest(request.id, request.action.value, request.by, request.reason))
    return found
