"""Builds the timeline of a run from its directory.  Read once, in the order of time, file by file as it lies there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from launch.trace.episode_spans import EpisodeSpans
from launch.trace.trace_events import TraceCounter, TraceEvent, TraceInstant, TraceSpan, TraceTrack, nest_spans
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.run_directory.json_fields import Event, get_integer, get_mapping, get_number, get_text
from protocol.run_directory.layout import EVENT_FILES
from protocol.run_directory.run_tail import RunTail

_ACTIVITY = "activity/"
"""Files of running sums of the activity of each process."""
_MARKS = {
    "alert.raised": "text",
    "process.died": "what",
    "process.hung": "what",
    "engine.died": "engine",
    "engine.load_failed": "engine",
    "engine.restart_failed": "engine",
    "engine.weights_repaired": "engine",
    "weights.checksum_mismatch": "engines",
    "worker.failed": "worker",
    "checkpoint.failed": "why",
    "checkpoint.damaged": "path",
    "weights.full_fetch": "why",
    "disk.full": "reason",
    "learner.nonfinite": "path",
    "learner.restarted": "step",
    "clock.jumped": "seconds",
    "run.finished": "reason",
}
"""Kind of event → its most telling field."""


class RunTimeline:
    """Takes a run's events in order of time and builds its timeline."""

    def __init__(self) -> None:
        self.begin_s: float | None = None
        """When the run, or what is left of its events, began."""
        self.end_s = 0.0
        self.steps: dict[int, tuple[float, float]] = {}
        """When each step began and ended, the wait before it left out."""
        self._pieces: list[TraceEvent] = []
        self._episodes: dict[str, EpisodeSpans] = {}
        self._groups: set[int] = set()
        self._phase: tuple[str, float] | None = None
        self._up: dict[str, float] = {}
        self._activity: dict[str, tuple[float, Mapping[str, float]]] = {}
        """Time and sums of the last line of each process's activity."""
        self._learner_s = 0.0
        """Time up to which the learner's track is complete."""
        self._rules: dict[str, Callable[[Event, float], None]] = {
            "run.phase": self._phase_began,
            "engine.started": self._engine_started,
            "engine.restarted": self._engine_started,
            "engine.died": self._engine_died,
            "engine.loaded": self._engine_loaded,
            "engine.onloaded": self._engine_onloaded,
            "learner.step": self._stepped,
            "weights.published": self._published,
            "weights.copied": self._copied,
            "checkpoint.saved": self._saved,
            "group.opened": self._group_opened,
            "group.closed": self._group_closed,
            "sandbox.counted": self._sandboxes,
            "admission.held": self._held,
        }

    def add_event(self, event: Event, t: float) -> None:
        """Add one event of ``events/``."""
        kind, writer = get_text(event, "kind"), get_text(event, "writer")
        self.begin_s = t if self.begin_s is None else self.begin_s
        self.end_s = max(self.end_s, t)
        if rule := self._rules.get(kind):
            rule(event, t)
        elif kind.startswith("episode.") or kind in {"sandbox.started", "worker.started"}:
            self._episode(writer, kind, event, t)
        if kind in _MARKS:
            text = event.get(_MARKS[kind])
            self._pieces.append(TraceInstant(TraceTrack("run", "marks"), kind, t, {"text": text, **_plain(event)}))

    def add_activity(self, name: str, event: Event, t: float) -> None:
        """Add one line of ``activity/``: the mean number of things in each state since the line before."""
        sent = get_mapping(event, "seconds")
        seconds = {state: value for state in sent if (value := get_number(sent, state)) is not None}
        before = self._activity.get(name)
        self._activity[name] = t, seconds
        if before is None or t <= before[0]:
            return
        began, sums = before
        passed_s = t - began
        levels = {state: max(0.0, value - sums.get(state, 0.0)) / passed_s for state, value in seconds.items()}
        rounded = {state: round(level, 3) for state, level in levels.items()}
        self._pieces.append(TraceCounter(TraceTrack(name, "at once"), began, rounded))

    def trace_events(self) -> list[TraceEvent]:
        """Return everything that went on; what has not ended goes on until the last event."""
        found = list(self._pieces)
        if self._phase is not None:
            found.append(TraceSpan(TraceTrack("run", "phases"), self._phase[0], self._phase[1], self.end_s))
        found += [TraceSpan(TraceTrack(name, "server"), "up", began, self.end_s) for name, began in self._up.items()]
        for episodes in self._episodes.values():
            found += episodes.spans()
        spans = [piece for piece in found if isinstance(piece, TraceSpan)]
        return [*nest_spans(spans), *(piece for piece in found if not isinstance(piece, TraceSpan))]

    # -- rules ---------------------------------------------------------------------------------------------------

    def _episode(self, writer: str, kind: str, event: Event, t: float) -> None:
        episodes = self._episodes.setdefault(writer, EpisodeSpans(writer))
        before = episodes.in_flight
        episodes.add_event(kind, event, t)
        if episodes.in_flight != before:
            self._pieces.append(
                TraceCounter(TraceTrack(writer, "in flight"), t, {"episodes": float(episodes.in_flight)})
            )

    def _phase_began(self, event: Event, t: float) -> None:
        if self._phase is not None:
            self._pieces.append(TraceSpan(TraceTrack("run", "phases"), self._phase[0], self._phase[1], t))
        self._phase = get_text(event, "phase"), t

    def _engine_started(self, event: Event, t: float) -> None:
        name, seconds = get_text(event, "engine"), get_number(event, "seconds") or 0.0
        self._engine_died(event, t - seconds)
        self._pieces.append(TraceSpan(TraceTrack(name, "server"), "starting", t - seconds, t))
        self._up[name] = t

    def _engine_died(self, event: Event, t: float) -> None:
        if (began := self._up.pop(get_text(event, "engine"), None)) is not None:
            self._pieces.append(TraceSpan(TraceTrack(get_text(event, "engine"), "server"), "up", began, max(began, t)))

    def _engine_loaded(self, event: Event, t: float) -> None:
        """Add the pause of a load, if there was one; before that it read the files, and went on."""
        track, pause_s, load_s = (
            TraceTrack(get_text(event, "engine"), "weights"),
            _ms(event, "pause_ms"),
            _ms(event, "load_ms"),
        )
        args: dict[str, JsonValue] = {"version": get_integer(event, "version")}
        prefetch_s, began = _ms(event, "prefetch_ms"), t - max(pause_s, load_s)
        self._pieces.append(TraceSpan(track, "prefetch", began - prefetch_s, began, args))
        self._pieces.append(TraceSpan(track, "paused" if pause_s else "load beside", began, t, args))
        if pause_s:
            self._pieces.append(TraceSpan(track, "load", t - load_s, t, args))

    def _engine_onloaded(self, event: Event, t: float) -> None:
        offloaded_s = get_number(event, "offloaded_s") or 0.0
        self._pieces.append(
            TraceSpan(TraceTrack(get_text(event, "engine"), "weights"), "offloaded", t - offloaded_s, t)
        )

    def _stepped(self, event: Event, t: float) -> None:
        step, step_s, wait_s = (
            get_integer(event, "step"),
            get_number(event, "step_s") or 0.0,
            get_number(event, "wait_s") or 0.0,
        )
        track, began = TraceTrack("learner", "steps"), max(self._learner_s, t - step_s)
        waiting = max(self._learner_s, began - wait_s)
        self._pieces.append(TraceSpan(track, "waiting for a batch", waiting, began))
        args: dict[str, JsonValue] = {
            name: event[name] for name in ("trained_tokens", "staleness_mean", "loss") if name in event
        }
        self._pieces.append(TraceSpan(track, f"step {step}", began, max(began, t), args))
        self._learner_s = max(began, t)
        self.steps[step] = began, t

    def _published(self, event: Event, t: float) -> None:
        args: dict[str, JsonValue] = {"version": get_integer(event, "version"), "step": get_integer(event, "step")}
        self._pieces.append(TraceInstant(TraceTrack("learner", "weights"), "published", t, args))

    def _copied(self, event: Event, t: float) -> None:
        args: dict[str, JsonValue] = {"version": get_integer(event, "version"), "bytes": get_integer(event, "bytes")}
        track = TraceTrack(f"copies {get_text(event, 'host')}", "weights")
        self._pieces.append(TraceSpan(track, "copy", t - _ms(event, "ms"), t, args))

    def _saved(self, event: Event, t: float) -> None:
        args: dict[str, JsonValue] = {"step": get_integer(event, "step"), "bytes": get_integer(event, "bytes")}
        written_s = get_number(event, "written_s") or 0.0
        self._pieces.append(TraceSpan(TraceTrack("learner", "checkpoints"), "written", t - written_s, t, args))

    def _group_opened(self, event: Event, t: float) -> None:
        self._groups.add(get_integer(event, "group"))
        self._pieces.append(TraceCounter(TraceTrack("buffer", "open groups"), t, {"groups": float(len(self._groups))}))

    def _group_closed(self, event: Event, t: float) -> None:
        self._groups.discard(get_integer(event, "group"))
        self._pieces.append(TraceCounter(TraceTrack("buffer", "open groups"), t, {"groups": float(len(self._groups))}))

    def _sandboxes(self, event: Event, t: float) -> None:
        values = {name: float(get_integer(event, name)) for name in ("live", "starting", "waiting")}
        self._pieces.append(TraceCounter(TraceTrack(get_text(event, "worker"), "sandboxes"), t, values))

    def _held(self, event: Event, t: float) -> None:
        self._pieces.append(TraceInstant(TraceTrack("scheduler", "admission"), f"held: {get_text(event, 'reason')}", t))


def _ms(event: Event, key: str) -> float:
    return (get_number(event, key) or 0.0) / 1000


def _plain(event: Event) -> dict[str, JsonValue]:
    """Return the fields of an event without those that every event has."""
    return {key: value for key, value in event.items() if key not in {"t", "kind", "node", "writer", "seq"}}


def read_run_timeline(run_dir: Path) -> RunTimeline:
    """Read the timeline of a run.  Raises UserError where there is nothing."""
    timeline, reader = RunTimeline(), RunTail(run_dir, (*EVENT_FILES, f"{_ACTIVITY}*.jsonl"))
    while lines := reader.read():
        for line in lines:
            if line.value is None:
                continue
            if line.source.startswith(_ACTIVITY):
                timeline.add_activity(line.source.removeprefix(_ACTIVITY), line.value, line.t)
            else:
                timeline.add_event(line.value, line.t)
    if timeline.begin_s is None:
        raise UserError(f"{run_dir} has no events: name a run's directory (runs/ID)")
    return timeline
