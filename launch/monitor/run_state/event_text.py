"""Formats events as the lines of the log that people read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from protocol.cli.formatting import format_bytes, format_score
from protocol.plain_text import sanitize_line
from protocol.run_directory.json_fields import (
    Event,
    get_integer,
    get_list,
    get_mapping,
    get_number,
    get_numbers,
    get_text,
)
from protocol.weights import format_version

RUN_FLOWS = {"run": "running", "pause": "paused", "drain": "draining"}
"""Flow that a person requested → its text."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log."""

    t: float
    kind: str
    node: str
    level: str
    """``detail`` (hidden by default), ``info``, ``good``, ``warn`` or ``bad``."""
    text: str
    trajectory: str = ""


def describe_event(event: Event) -> LogLine | None:
    """Return an event as a line of the log; None for events that only feed gauges."""
    kind = get_text(event, "kind")
    if not kind or kind in _SILENT:
        return None
    level, sentence = _LINES.get(kind, ("info", kind))
    text = sentence.format_map(_EventFields(event)) if isinstance(sentence, str) else sentence(event)
    if kind == "run.finished" and event.get("ok") is not True:
        level = "bad"
    if kind == "group.closed" and get_text(event, "outcome") == "too_few_members":
        level = "warn"
    t, node, trajectory = get_number(event, "t") or 0.0, get_text(event, "node"), get_text(event, "trajectory")
    return LogLine(t, kind, node, level, sanitize_line(text[:300]), trajectory)


class _EventFields(dict[str, "_EventField"]):
    """The fields of an event, for templates."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self._event = event

    def __missing__(self, key: str) -> _EventField:
        return _EventField(self._event, key)


class _EventField(NamedTuple):
    """A field of an event, whose format specification says how it reads; a damaged field reads as empty or 0."""

    event: Event
    key: str

    def __format__(self, spec: str) -> str:
        match spec:
            case "words":
                return get_text(self.event, self.key).replace("_", " ")
            case "d":
                return str(get_integer(self.event, self.key))
            case "version":
                return format_version(get_integer(self.event, self.key, -1))
            case "s":
                return f"{get_number(self.event, self.key) or 0.0:,.1f} s"
            case "count":
                return str(len(get_list(self.event, self.key)))
            case _:
                return get_text(self.event, self.key)


def _ms(event: Event, key: str) -> str:
    value = get_number(event, key)
    return "?" if value is None else f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def _reward(event: Event, key: str = "reward") -> str:
    value = get_number(event, key)
    return "–" if value is None else f"{value:.2f}"


def _reason(event: Event, key: str = "reason") -> str:
    return f": {get_text(event, key)}" if get_text(event, key) else ""


def _run_finished(event: Event) -> str:
    return ("run finished" if event.get("ok") is True else "run stopped") + _reason(event)


def _run_phase(event: Event) -> str:
    return get_text(event, "phase").replace("_", " ") + _reason(event, "detail")


def _node_refused(event: Event) -> str:
    return f"node {get_text(event, 'name') or 'that joins'} cannot be used: {get_text(event, 'why')}"


def _episode_turn(event: Event) -> str:
    action = get_text(event, "command") or get_text(event, "tool") or f"{get_integer(event, 'sampled')} tokens"
    return f"{get_text(event, 'trajectory')} turn {get_integer(event, 'turn') + 1}: {action}"


def _episode_finished(event: Event) -> str:
    total = get_number(get_mapping(event, "ms"), "total")
    took = "" if total is None else f" in {total / 1000:.1f} s"
    status, turns = get_text(event, "status").replace("_", " "), get_integer(event, "turns")
    return f"{get_text(event, 'trajectory')} {status}, reward {_reward(event)}, {turns} turns{took}"


def _suspicious(event: Event) -> str:
    reasons = "; ".join(map(str, get_list(event, "why")))
    return f"{get_text(event, 'trajectory')} needs a look: {reasons}"


def _group_closed(event: Event) -> str:
    arrived, size = len(get_numbers(event, "rewards")), get_integer(event, "size")
    members = f"{arrived} of {size}" if arrived < size else f"{size}"
    return f"group {get_integer(event, 'group')} closed with {members}: {get_text(event, 'outcome').replace('_', ' ')}"


def _batch_skipped(event: Event) -> str:
    reasons = {
        "all_stale": "every token is too old",
        "nonfinite": "loss or gradient was not finite",
        "unusable": "no trajectory was of this run's model and weights",
    }
    reason = get_text(event, "reason")
    return f"{get_integer(event, 'groups')} groups skipped: {reasons.get(reason, reason)}"


def _learner_step(event: Event) -> str:
    loss = get_number(event, "loss")
    tail = "" if loss is None else f", loss {loss:.4f}"
    return f"step {get_integer(event, 'step')}: reward {_reward(event, 'reward_mean')}{tail}"


def _evaluation_requested(event: Event) -> str:
    return f"evaluation {get_text(event, 'name')} requested {get_text(event, 'reason')}".rstrip()


def _evaluation_finished(event: Event) -> str:
    score = format_score(get_number(event, "pass_at_1") or 0.0, get_number(event, "stderr"))
    tasks = f" at {known} tasks" if (known := get_integer(event, "tasks")) else ""
    attempts = f"{get_integer(event, 'n')} attempts"
    return f"evaluation {get_text(event, 'name')}: pass@1 {score} over {attempts}{tasks}"


def _engine_loaded(event: Event) -> str:
    version = format_version(get_integer(event, "version", -1))
    return f"engine {get_text(event, 'engine')} serves version {version} after a pause of {_ms(event, 'pause_ms')}"


def _weights_copied(event: Event) -> str:
    version, base = get_integer(event, "version", -1), get_integer(event, "base", -1)
    form = "in full" if base < 0 else f"as changes since {format_version(base)}"
    size = f"{format_bytes(get_integer(event, 'bytes'))}, {get_number(event, 'share') or 0.0:.1%} of the full size"
    host = get_text(event, "host")
    return f"version {format_version(version)} copied to {host} {form}: {size}, in {_ms(event, 'ms')}"


def _weights_mismatch(event: Event) -> str:
    repeated = "again, with new servers: check for different or broken processors"
    outcome = repeated if event.get("repeated") is True else "all are restarted"
    version = format_version(get_integer(event, "version", -1))
    return f"engines hold different weights as version {version} ({get_text(event, 'engines')}): {outcome}"


def _parity_measured(event: Event) -> str:
    version, k3 = format_version(get_integer(event, "version", -1)), get_number(event, "k3")
    value = "not finite" if k3 is None else f"{k3:.2g}"
    return f"logprob parity at version {version}: mean k3 {value} over {get_integer(event, 'tokens')} tokens"


def _config_changed(event: Event) -> str:
    before, after = (
        f"{value:g}" if (value := get_number(event, key)) is not None else "none" for key in ("before", "after")
    )
    return f"{get_text(event, 'key')} changed from {before} to {after}{_reason(event)}"


def _control_request_accepted(event: Event) -> str:
    by = f" by {get_text(event, 'by')}" if get_text(event, "by") else ""
    return f"{get_text(event, 'action')} requested{by}{_reason(event)}"


def _control_request_answered(event: Event) -> str:
    outcome = "done" if event.get("ok") is True else "refused"
    return f"{get_text(event, 'action') or 'request'} {outcome}: {get_text(event, 'text')}"


def _scheduler_flow(event: Event) -> str:
    flow = get_text(event, "flow")
    return f"{RUN_FLOWS.get(flow, flow)}, requested by `longshore ctl`"


def _clock_jumped(event: Event) -> str:
    seconds = get_number(event, "seconds") or 0.0
    way = "forward" if seconds > 0 else "back"
    node, writer = get_text(event, "node"), get_text(event, "writer")
    return f"the clock of {node} jumped {way} by {abs(seconds):,.1f} s (seen by {writer})"


_LINES: dict[str, tuple[str, str | Callable[[Event], str]]] = {
    "run.started": ("info", "run {run} started: {recipe}, {mode}"),
    "run.phase": ("info", _run_phase),
    "run.finished": ("good", _run_finished),
    "run.stalled": ("detail", "no progress for {seconds:s}: {text}"),
    "run.config_changed": ("info", _config_changed),
    "evaluation.requested": ("info", _evaluation_requested),
    "evaluation.started": ("info", "evaluation {name} started during training"),
    "evaluation.skipped": ("warn", "evaluation {name} skipped: {why}"),
    "evaluation.failed": ("warn", "evaluation {name} failed: {why}"),
    "evaluation.aborted": ("warn", "evaluation {name} aborted: {why}"),
    "evaluation.finished": ("good", _evaluation_finished),
    "best_checkpoint.exported": ("good", "best checkpoint: step {step:d}, its weights are in {path}"),
    "node.up": ("info", "node {name} is up"),
    "node.down": ("bad", "node {name} ({address}) is gone"),
    "node.refused": ("warn", _node_refused),
    "host.ready": ("detail", "host {name} ({address}) is ready"),
    "host.log_sync_failed": ("warn", "logs of {what} cannot be synced: {why}"),
    "worker.started": ("info", "worker {worker} started"),
    "worker.failed": ("info", "worker {worker} failed and is restarted: {why}"),
    "rollout_request.redelivered": ("detail", "{trajectory} redelivered to its worker, whose answer was lost"),
    "rollout_request.reissued": ("detail", "{trajectory} issued again: {reason:words}"),
    "rollout_request.withdrawn": ("detail", "{trajectory} withdrawn before it started: {reason:words}"),
    "rollout_request.cancelled": ("info", "{trajectory} cancelled on request"),
    "rollout_request.dropped": ("detail", "{requests:d} rollout requests dropped: {reason:words}"),
    "group.opened": ("detail", "group {group:d} opened: {size:d} × {task}"),
    "group.closed": ("info", _group_closed),
    "group.admitted": ("detail", "group {group:d} admitted {reason}"),
    "episode.started": ("detail", "{trajectory} started: {task}"),
    "episode.turn": ("detail", _episode_turn),
    "episode.tool": ("detail", lambda event: (
        f"{get_text(event, 'trajectory')} ran {get_text(event, 'command') or get_text(event, 'tool')}"
    )),
    "episode.finished": ("info", _episode_finished),
    "episode.failed": ("warn", "{trajectory} failed: {reason}, {detail}"),
    "episode.cancelled": ("detail", "{trajectory} cancelled"),
    "episode.suspicious": ("warn", _suspicious),
    "pictures.removed": ("info", "the pictures of {episodes:d} older episodes are removed (agent.picture_budget_mb)"),
    "trajectory.stored": ("detail", "{trajectory} arrived: {outcome}"),
    "trajectory.acknowledged": ("detail", "{trajectory} acknowledged: {outcome}"),
    "trajectory.rejected": ("detail", "{trajectory} arrived too late: its group is closed"),
    "sample.abandoned": ("warn", "{trajectory} given up after {attempts:d} attempts"),
    "task.requeued": ("info", "{task} queued again: {reason:words}"),
    "task.put_off": ("detail", "{task} put off until its image is ready"),
    "task.unusable": ("warn", "{task} is left out: {reason}"),
    "task.usable": ("info", "{task} is used again: its image is there"),
    "images.on_demand": ("warn", "{worker} makes missing images only when an episode needs them: {reason}"),
    "epoch.ordered": ("info", "epoch {epoch:d} of {tasks:d} tasks, {reason}"),
    "admission.blocked": ("detail", "no new group: {reason}"),
    "admission.held": ("detail", "no new group for now: {reason:words}"),
    "infra.failure_rates": ("detail", "infrastructure failed {failed:d} of {attempts:d} attempts"),
    "scheduler.flow": ("warn", _scheduler_flow),
    "scheduler.retuned": ("detail", "episodes in flight set to {in_flight:d}"),
    "scheduler.drained": ("info", "drained: {ready:d} groups are ready"),
    "scheduler.restored": ("info", "scheduler resumed with {open_groups:d} open groups"),
    "control_request.accepted": ("info", _control_request_accepted),
    "control_request.answered": ("warn", _control_request_answered),
    "batch.skipped": ("warn", _batch_skipped),
    "learner.step": ("good", _learner_step),
    "learner.nonfinite": ("bad", "loss or gradient not finite, update skipped; its batch is in {path}"),
    "learner.restarted": ("warn", "learner resumed from the checkpoint of step {step:d}; later steps are taken again"),
    "checkpoint.saved": ("info", "checkpoint of step {step:d} saved"),
    "checkpoint.failed": ("warn", "checkpoint of step {step:d} could not be written: {why}"),
    "checkpoint.damaged": ("bad", "checkpoint {path} is damaged and was skipped: {why}"),
    "weights.published": ("info", "version {version:version} published"),
    "weights.copied": ("detail", _weights_copied),
    "weights.full_fetch": ("warn", "version {version:version} is sent in full to {host}: {why}"),
    "weights.checksum_mismatch": ("bad", _weights_mismatch),
    "engine.started": ("info", "engine {engine} started"),
    "engine.loaded": ("info", _engine_loaded),
    "engine.load_failed": ("warn", "engine {engine} did not load new weights: {why}"),
    "engine.offloaded": ("detail", "engine {engine} released its GPU memory for the learner"),
    "engine.offload_failed": ("warn", "engine {engine} kept its GPU memory: {why}"),
    "engine.onloaded": ("info", lambda event: (
        "engine {engine} serves version {version:version} after {offloaded_s:s} offloaded"
        .format_map(_EventFields(event)) + (f" ({why})" if (why := get_text(event, "why")) else "")
    )),
    "engine.weights_repaired": ("bad", "engine {engine} had wrong weights as version {version:version}; repaired"),
    "engine.draining": ("info", "engine {engine} is draining on request"),
    "engine.drained": ("info", "engine {engine} is drained, its server restarts"),
    "engine.died": ("bad", "the server of engine {engine} died: {why}"),
    "engine.restarted": ("warn", "the server of engine {engine} is back"),
    "engine.restart_failed": ("bad", "the server of engine {engine} did not restart: {why}"),
    "alert.raised": ("warn", "{text}"),
    "alert.resolved": ("detail", "alert resolved: {name:words}"),
    "parity.measured": ("detail", _parity_measured),
    "parity.skipped": ("info", "logprob parity not measured before step {step:d}: {why}"),
    "trajectory.unusable": ("bad", "{trajectory} cannot be trained and was dropped: {why}"),
    "message.refused": ("warn", "message from {sender} refused: {reason}, {detail}"),
    "ack.unroutable": ("detail", "{sender} is gone: an acknowledgement was not delivered"),
    "sender.closed": ("detail", "{worker} closed its stream with {unacknowledged:count} unacknowledged trajectories"),
    "peer.disconnected": ("detail", "connection from {peer} closed"),
    "process.died": ("bad", "{what} died: {why}"),
    "process.hung": ("bad", "{what} hangs: {why}"),
    "clock.jumped": ("warn", _clock_jumped),
    "disk.full": ("warn", "the disk is full, arriving trajectories wait: {reason}"),
    "disk.freed": ("warn", "trajectories that waited {seconds:s} for a full disk are stored"),
    "events.dropped": ("warn", "{writer} could not write {events:d} events: a full disk?"),
    "stop.failed": ("warn", "not everything stopped: {why}"),
}  # fmt: skip
"""Kind of event → its level in the log, and its text: a template over the event's fields, or a function."""
_SILENT = frozenset(
    {
        "loop.measured",
        "sandbox.counted",
        "sandbox.started",
        "images.counted",
        "warm_start.progress",
        "evaluation.progress",
    }
)
