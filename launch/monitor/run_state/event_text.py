"""Formats events as sentences for the log that a person reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launch.monitor.run_state.sanitize import sanitize_text
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


@dataclass(frozen=True, slots=True)
class LogLine:
    t: float
    kind: str
    node: str
    level: str
    """``detail`` (hidden unless asked for), ``info``, ``good``, ``warn`` or ``bad``."""
    text: str
    trajectory: str = ""


def describe_event(event: Event) -> LogLine | None:
    """Return an event as a line of the log; None for events that only feed gauges."""
    kind = get_text(event, "kind")
    if not kind or kind in _SILENT:
        return None
    sentence = _SENTENCES.get(kind)
    said = sentence(event) if sentence else kind
    return LogLine(
        *(get_number(event, "t") or 0.0, kind, get_text(event, "node"), _level(kind, event)),
        *(sanitize_text(said[:300]), get_text(event, "trajectory")),
    )


def _level(kind: str, event: Event) -> str:
    if kind == "run.finished":
        return "good" if event.get("ok") is True else "bad"
    if kind == "group.closed" and get_text(event, "outcome") == "infra_short":
        return "warn"
    return _LEVELS.get(kind, "info")


def _ms(event: Event, key: str) -> str:
    value = get_number(event, key)
    return "?" if value is None else f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def _reward(event: Event, key: str = "reward") -> str:
    value = get_number(event, key)
    return "–" if value is None else f"{value:.2f}"


def _episode_finished(event: Event) -> str:
    total = get_number(get_mapping(event, "ms"), "total")
    took = "" if total is None else f" in {total / 1000:.1f} s"
    status = get_text(event, "status").replace("_", " ")
    return (
        f"{get_text(event, 'trajectory')} {status}, reward {_reward(event)}, {get_integer(event, 'turns')} turns{took}"
    )


def _eval_finished(event: Event) -> str:
    spread = get_number(event, "stderr")
    error = "" if spread is None else f" ± {100 * spread:.1f}"
    score = 100 * (get_number(event, "pass_at_1") or 0.0)
    known = get_integer(event, "tasks")
    tasks = f" at {known} tasks" if known else ""
    attempts = f"{get_integer(event, 'n')} attempts"
    return f"evaluation {get_text(event, 'name')}: pass@1 {score:.1f} %{error} over {attempts}{tasks}"


def _learner_step(event: Event) -> str:
    loss = get_number(event, "loss")
    tail = "" if loss is None else f", loss {loss:.4f}"
    return f"step {get_integer(event, 'step')}: reward {_reward(event, 'reward_mean')}{tail}"


def _run_started(event: Event) -> str:
    return f"run {get_text(event, 'run')} started: {get_text(event, 'recipe')}, {get_text(event, 'mode')}"


def _run_finished(event: Event) -> str:
    why = get_text(event, "reason")
    return ("run finished" if event.get("ok") is True else "run stopped") + (f": {why}" if why else "")


def _run_phase(event: Event) -> str:
    detail = get_text(event, "detail")
    return get_text(event, "phase").replace("_", " ") + (f": {detail}" if detail else "")


def _suspicious(event: Event) -> str:
    return f"{get_text(event, 'trajectory')} passed, and should be read: {'; '.join(map(str, get_list(event, 'why')))}"


def _group_closed(event: Event) -> str:
    arrived, size = len(get_numbers(event, "rewards")), get_integer(event, "size")
    members = f"{arrived} of {size}" if arrived < size else f"{size}"
    return f"group {get_integer(event, 'group')} closed with {members}: {get_text(event, 'outcome').replace('_', ' ')}"


def _turn(event: Event) -> str:
    did = get_text(event, "command") or get_text(event, "tool") or f"{get_integer(event, 'sampled')} tokens"
    return f"{get_text(event, 'trajectory')} turn {get_integer(event, 'turn') + 1}: {did}"


def _engine_load(event: Event) -> str:
    version = format_version(get_integer(event, "version", -1))
    return f"engine {get_text(event, 'engine')} serves version {version}: stood still {_ms(event, 'pause_ms')}"


def _engine_onloaded(event: Event) -> str:
    version, why = format_version(get_integer(event, "version", -1)), get_text(event, "why")
    stood = f"was offloaded for {get_number(event, 'offloaded_s') or 0.0:,.1f} s"
    return f"engine {get_text(event, 'engine')} serves version {version}: {stood}" + (f" ({why})" if why else "")


def _clock_jumped(event: Event) -> str:
    seconds = get_number(event, "seconds") or 0.0
    way = "forward" if seconds > 0 else "back"
    node, writer = get_text(event, "node"), get_text(event, "writer")
    return f"the clock of {node} was set {abs(seconds):,.1f} s {way}, as {writer} sees it"


def _weights_copied(event: Event) -> str:
    version, base = get_integer(event, "version", -1), get_integer(event, "base", -1)
    since = "whole" if base < 0 else f"as what changed since {format_version(base)}"
    share = f"{get_integer(event, 'bytes') / 1e6:,.1f} MB, {get_number(event, 'share') or 0.0:.1%} of it"
    return (
        f"version {format_version(version)} came to {get_text(event, 'host')} {since}: {share}, in {_ms(event, 'ms')}"
    )


def _weights_mismatch(event: Event) -> str:
    again = "again, though their servers are new: look for other processors, or for one that is broken"
    then = again if event.get("again") is True else "all start anew"
    version = format_version(get_integer(event, "version", -1))
    return f"engines hold different weights as version {version} ({get_text(event, 'engines')}): {then}"


def _weights_full_fetch(event: Event) -> str:
    version = format_version(get_integer(event, "version", -1))
    return f"version {version} is sent whole to {get_text(event, 'host')}: {get_text(event, 'why')}"


def _parity_measured(event: Event) -> str:
    version, k3 = format_version(get_integer(event, "version", -1)), get_number(event, "k3")
    found = "not finite" if k3 is None else f"{k3:.2g}"
    return f"parity at version {version}: mean k3 {found} over {get_integer(event, 'tokens')} tokens"


def _config_changed(event: Event) -> str:
    before, after = (
        f"{value:g}" if (value := get_number(event, key)) is not None else "none" for key in ("before", "after")
    )
    return f"{get_text(event, 'key')} is {after} from now on, and was {before}" + _why(event)


def _control_request_accepted(event: Event) -> str:
    by = f" by {get_text(event, 'by')}" if get_text(event, "by") else ""
    return f"{get_text(event, 'action')} was asked for{by}{_why(event)}"


def _why(event: Event) -> str:
    return f": {get_text(event, 'reason')}" if get_text(event, "reason") else ""


_SKIP_REASONS = {
    "all_stale": "every token of theirs is too old",
    "nonfinite": "loss or gradient was not finite",
}
RUN_FLOWS = {"run": "going on", "pause": "paused", "drain": "draining"}
"""The state that a person asked for → its text."""

_SENTENCES: dict[str, Callable[[Event], str]] = {
    "run.started": _run_started,
    "run.phase": _run_phase,
    "run.finished": _run_finished,
    "eval.finished": _eval_finished,
    "eval.requested": lambda e: " ".join(
        f"evaluation {get_text(e, 'name')} was asked for {get_text(e, 'reason')}".split()
    ),
    "eval.started": lambda e: f"evaluation {get_text(e, 'name')} has begun, beside training",
    "eval.skipped": lambda e: f"no evaluation {get_text(e, 'name')}: {get_text(e, 'why')}",
    "eval.failed": lambda e: f"evaluation {get_text(e, 'name')} failed: {get_text(e, 'why')}",
    "eval.aborted": lambda e: f"evaluation {get_text(e, 'name')} is broken off: {get_text(e, 'why')}",
    "best_checkpoint.exported": lambda e: (
        f"best checkpoint: step {get_integer(e, 'step')}, its weights are in {get_text(e, 'path')}"
    ),
    "node.up": lambda e: f"node {get_text(e, 'name') or get_text(e, 'node')} is up",
    "worker.started": lambda e: f"worker {get_text(e, 'worker')} started",
    "node.down": lambda e: f"node {get_text(e, 'name')} ({get_text(e, 'address')}) is gone",
    "node.refused": lambda e: f"node {get_text(e, 'name') or 'that joins'} cannot be used: {get_text(e, 'why')}",
    "host.ready": lambda e: f"{get_text(e, 'name')} ({get_text(e, 'address')}) has the model and is heard of",
    "host.log_sync_failed": lambda e: f"nothing is heard of what {get_text(e, 'what')} writes: {get_text(e, 'why')}",
    "rollout_request.redelivered": lambda e: (
        f"{get_text(e, 'trajectory')} is given again to its worker, whose answer was lost"
    ),
    "worker.failed": lambda e: f"worker {get_text(e, 'worker')} failed and is started again: {get_text(e, 'why')}",
    "group.opened": lambda e: (
        f"group {get_integer(e, 'group')} opened: {get_integer(e, 'size')} × {get_text(e, 'task')}"
    ),
    "group.closed": _group_closed,
    "episode.started": lambda e: f"{get_text(e, 'trajectory')} started: {get_text(e, 'task')}",
    "episode.turn": _turn,
    "episode.tool": lambda e: f"{get_text(e, 'trajectory')} ran {get_text(e, 'command') or get_text(e, 'tool')}",
    "episode.finished": _episode_finished,
    "episode.failed": lambda e: f"{get_text(e, 'trajectory')} failed: {get_text(e, 'reason')}, {get_text(e, 'detail')}",
    "episode.cancelled": lambda e: f"{get_text(e, 'trajectory')} is no longer needed",
    "episode.suspicious": _suspicious,
    "trajectory.stored": lambda e: f"{get_text(e, 'trajectory')} arrived: {get_text(e, 'outcome')}",
    "trajectory.acknowledged": lambda e: f"{get_text(e, 'trajectory')} acknowledged: {get_text(e, 'outcome')}",
    "trajectory.rejected": lambda e: f"{get_text(e, 'trajectory')} came too late: no group waits for it",
    "learner.step": _learner_step,
    "weights.published": lambda e: f"version {format_version(get_integer(e, 'version', -1))} published",
    "weights.checksum_mismatch": _weights_mismatch,
    "weights.copied": _weights_copied,
    "weights.full_fetch": _weights_full_fetch,
    "engine.load": _engine_load,
    "engine.offloaded": lambda e: f"engine {get_text(e, 'engine')} gives its GPU memory to the learner",
    "engine.offload_failed": lambda e: f"{get_text(e, 'engine')} keeps its memory: {get_text(e, 'why')}",
    "engine.onloaded": _engine_onloaded,
    "engine.started": lambda e: f"engine {get_text(e, 'engine')} started",
    "engine.load_failed": lambda e: f"engine {get_text(e, 'engine')} did not load: {get_text(e, 'why')}",
    "engine.weights_repaired": lambda e: (
        f"{get_text(e, 'engine')} had wrong weights as version {format_version(get_integer(e, 'version', -1))}; "
        "they are right now"
    ),
    "engine.restart_failed": lambda e: f"engine {get_text(e, 'engine')} did not restart: {get_text(e, 'why')}",
    "checkpoint.saved": lambda e: f"checkpoint of step {get_integer(e, 'step')} saved",
    "checkpoint.failed": lambda e: (
        f"checkpoint of step {get_integer(e, 'step')} could not be written: {get_text(e, 'why')}"
    ),
    "checkpoint.damaged": lambda e: (
        f"checkpoint {get_text(e, 'path')} is damaged and passed over: {get_text(e, 'why')}"
    ),
    "learner.restarted": lambda e: (
        f"learner goes on from the checkpoint of step {get_integer(e, 'step')}; later steps are taken again"
    ),
    "stop.failed": lambda e: f"not everything stopped: {get_text(e, 'why')}",
    "engine.draining": lambda e: f"{get_text(e, 'engine')} takes no new request, as it was asked to",
    "engine.drained": lambda e: f"{get_text(e, 'engine')} is drained and gets another server",
    "engine.died": lambda e: f"{get_text(e, 'engine')}'s server died: {get_text(e, 'why')}",
    "engine.restarted": lambda e: f"{get_text(e, 'engine')}'s server is there again",
    "admission.blocked": lambda e: f"no new group: {get_text(e, 'reason')}",
    "admission.held": lambda e: f"no new group for now: {get_text(e, 'reason').replace('_', ' ')}",
    "epoch.ordered": lambda e: (
        f"epoch {get_integer(e, 'epoch')} of {get_integer(e, 'tasks')} tasks, {get_text(e, 'reason')}"
    ),
    "group.admitted": lambda e: f"group {get_integer(e, 'group')} admitted {get_text(e, 'reason')}",
    "task.requeued": lambda e: f"{get_text(e, 'task')} comes again: {get_text(e, 'reason').replace('_', ' ')}",
    "rollout_request.reissued": lambda e: (
        f"{get_text(e, 'trajectory')} begins again: {get_text(e, 'reason').replace('_', ' ')}"
    ),
    "rollout_request.withdrawn": lambda e: (
        f"{get_text(e, 'trajectory')} need not begin: {get_text(e, 'reason').replace('_', ' ')}"
    ),
    "rollout_requests.dropped": lambda e: (
        f"{get_integer(e, 'tickets')} tickets forgotten: {get_text(e, 'reason').replace('_', ' ')}"
    ),
    "infra.failure_rates": lambda e: (
        f"infrastructure failed {get_integer(e, 'failed')} of {get_integer(e, 'attempts')} attempts"
    ),
    "sample.abandoned": lambda e: f"{get_text(e, 'trajectory')} given up after {get_integer(e, 'attempts')} attempts",
    "scheduler.flow": lambda e: (
        f"{RUN_FLOWS.get(get_text(e, 'flow'), get_text(e, 'flow'))}, as `python -m launch.ctl` asked"
    ),
    "run.config_changed": _config_changed,
    "control_request.accepted": _control_request_accepted,
    "control_request.answered": lambda e: (
        f"{get_text(e, 'action') or 'a request'} {'done' if e.get('ok') is True else 'refused'}: {get_text(e, 'text')}"
    ),
    "rollout_request.cancelled": lambda e: f"{get_text(e, 'trajectory')} is given up, as somebody asked",
    "scheduler.retuned": lambda e: f"asked for {get_integer(e, 'in_flight')} episodes in flight",
    "scheduler.drained": lambda e: f"drained: {get_integer(e, 'ready')} groups are ready",
    "scheduler.restored": lambda e: f"scheduler goes on with {get_integer(e, 'open_groups')} open groups",
    "batch.skipped": lambda e: (
        f"{get_integer(e, 'groups')} groups skipped: {_SKIP_REASONS.get(get_text(e, 'reason'), get_text(e, 'reason'))}"
    ),
    "learner.nonfinite": lambda e: (
        f"loss or gradient not finite, update left out; its batch is in {get_text(e, 'path')}"
    ),
    "alert.raised": lambda e: get_text(e, "text"),
    "alert.resolved": lambda e: f"{get_text(e, 'name').replace('_', ' ')}: no longer",
    "run.stalled": lambda e: f"no progress for {get_number(e, 'seconds') or 0.0:,.0f} s: {get_text(e, 'text')}",
    "parity.measured": _parity_measured,
    "parity.skipped": lambda e: f"parity was not looked for before step {get_integer(e, 'step')}: {get_text(e, 'why')}",
    "ack.unroutable": lambda e: f"{get_text(e, 'sender')} is gone: an answer was not delivered",
    "sender.closed": lambda e: (
        f"{get_text(e, 'worker')} closed its stream, unacknowledged: {len(get_list(e, 'unacknowledged'))}"
    ),
    "message.refused": lambda e: f"{get_text(e, 'sender')} refused: {get_text(e, 'reason')}, {get_text(e, 'detail')}",
    "peer.disconnected": lambda e: f"the connection from {get_text(e, 'peer')} ended",
    "process.died": lambda e: f"{get_text(e, 'what')} died: {get_text(e, 'why')}",
    "process.hung": lambda e: f"{get_text(e, 'what')} hangs: {get_text(e, 'why')}",
    "clock.jumped": _clock_jumped,
    "disk.full": lambda e: f"nothing that arrives can be stored, and it waits: {get_text(e, 'reason')}",
    "disk.freed": lambda e: f"what waited {get_number(e, 'seconds') or 0.0:,.1f} s for a full disk is stored",
    "events.dropped": lambda e: (
        f"{get_text(e, 'writer')} could not write {get_integer(e, 'events')} events: a full disk?"
    ),
}
_SILENT = frozenset({"sandbox.stats", "sandbox.started", "warm_start.progress", "eval.progress"})
_LEVELS = {
    "episode.turn": "detail",
    "episode.tool": "detail",
    "admission.blocked": "detail",
    "admission.held": "detail",
    "group.admitted": "detail",
    "rollout_request.reissued": "detail",
    "rollout_request.redelivered": "detail",
    "host.ready": "detail",
    "host.log_sync_failed": "warn",
    "node.down": "bad",
    "node.refused": "warn",
    "rollout_request.withdrawn": "detail",
    "infra.failure_rates": "detail",
    "rollout_requests.dropped": "detail",
    "sample.abandoned": "warn",
    "disk.full": "warn",
    "disk.freed": "warn",
    "scheduler.flow": "warn",
    "learner.restarted": "warn",
    "control_request.answered": "warn",
    "scheduler.retuned": "detail",
    "episode.started": "detail",
    "episode.cancelled": "detail",
    "trajectory.stored": "detail",
    "trajectory.acknowledged": "detail",
    "trajectory.rejected": "detail",
    "group.opened": "detail",
    "engine.offloaded": "detail",
    "parity.measured": "detail",
    "learner.step": "good",
    "eval.finished": "good",
    "eval.skipped": "warn",
    "eval.failed": "warn",
    "eval.aborted": "warn",
    "best_checkpoint.exported": "good",
    "engine.died": "bad",
    "engine.restarted": "warn",
    "process.died": "bad",
    "process.hung": "bad",
    "clock.jumped": "warn",
    "events.dropped": "warn",
    "episode.failed": "warn",
    "episode.suspicious": "warn",
    "ack.unroutable": "detail",
    "sender.closed": "detail",
    "peer.disconnected": "detail",
    "alert.raised": "warn",
    "alert.resolved": "detail",
    "run.stalled": "detail",
    "batch.skipped": "warn",
    "learner.nonfinite": "bad",
    "message.refused": "warn",
    "weights.copied": "detail",
    "weights.full_fetch": "warn",
    "engine.load_failed": "warn",
    "engine.offload_failed": "warn",
    "engine.restart_failed": "bad",
    "engine.weights_repaired": "bad",
    "weights.checksum_mismatch": "bad",
    "stop.failed": "warn",
    "checkpoint.failed": "warn",
    "checkpoint.damaged": "bad",
}
