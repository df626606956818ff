"""Builds spans of episodes: waiting for a sandbox, sampling, tools, grading, one after the other in the episode's own.

An episode whose process died has no end of its own: it ends where it was last heard of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from launch.trace.trace_events import TraceSpan, TraceTrack, assign_tracks
from protocol.events import JsonValue
from protocol.run_directory.json_fields import Event, get_integer, get_mapping, get_number, get_text


@dataclass(slots=True)
class _Episode:
    name: str
    begin_s: float
    task: str
    at_s: float
    """The time up to which parts are known."""
    tool: tuple[float, str] | None = None
    parts: list[tuple[str, float, float, dict[str, JsonValue]]] = field(
        default_factory=list[tuple[str, float, float, dict[str, JsonValue]]]
    )

    def add(self, name: str, begin_s: float, end_s: float, **args: JsonValue) -> None:
        """Add a part; parts follow each other whatever clocks and roundings say."""
        begin_s, end_s = max(begin_s, self.at_s), max(end_s, self.at_s)
        self.parts.append((name, begin_s, end_s, args))
        self.at_s = end_s

    def end_tool(self, t: float) -> None:
        if self.tool is not None:
            began, name = self.tool
            self.add(name or "tool", began, t)
            self.tool = None


class EpisodeSpans:
    """Builds the spans of one worker's episodes.  Fed with its events in their order."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._open: dict[str, _Episode] = {}
        self._done: list[tuple[_Episode, dict[str, JsonValue]]] = []

    def add_event(self, kind: str, event: Event, t: float) -> None:
        name = get_text(event, "trajectory")
        if kind == "episode.started":
            self._open[name] = _Episode(name, t, get_text(event, "task"), t)
        elif kind == "worker.started":
            self.close_open()
        elif (episode := self._find_episode(name)) is not None:
            self._go_on(episode, kind, event, t)

    def _find_episode(self, name: str) -> _Episode | None:
        """Return an episode by its name with or without its attempt, which is then the newest one."""
        if name in self._open:
            return self._open[name]
        return next((each for each in reversed(self._open.values()) if each.name.startswith(f"{name}-a")), None)

    def _go_on(self, episode: _Episode, kind: str, event: Event, t: float) -> None:
        seconds = (get_number(event, "ms") or 0.0) / 1000
        match kind:
            case "sandbox.started":
                episode.add("acquire", episode.begin_s, t)
            case "episode.turn":
                episode.end_tool(t - seconds)
                episode.add(
                    "generate", t - seconds, t, turn=get_integer(event, "turn"), sampled=get_integer(event, "sampled")
                )
            case "episode.tool":
                episode.end_tool(t)
                episode.tool = t, get_text(event, "tool")
            case "episode.finished":
                grade_s = (get_number(get_mapping(event, "ms"), "grade") or 0.0) / 1000
                episode.end_tool(t - grade_s)
                episode.add("grade", t - grade_s, t)
                self._close(episode, status=get_text(event, "status"), reward=get_number(event, "reward") or 0.0)
            case "episode.cancelled":
                episode.end_tool(t)
                episode.at_s = max(t, episode.at_s)
                self._close(episode, status="cancelled")
            case _:
                pass

    def _close(self, episode: _Episode, **args: JsonValue) -> None:
        del self._open[episode.name]
        self._done.append((episode, args))

    def close_open(self) -> None:
        """Close the open episodes, which ended with their process or with the last event."""
        for episode in list(self._open.values()):
            episode.end_tool(episode.at_s)
            self._close(episode, status="unfinished")

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def spans(self) -> Iterator[TraceSpan]:
        """Return the spans of all episodes, on as many tracks as ran at once."""
        self.close_open()
        nowhere = TraceTrack(self._worker, "")
        whole = [
            TraceSpan(nowhere, each.name, each.begin_s, each.at_s, {"task": each.task, **args})
            for each, args in self._done
        ]
        for span, place, (episode, _) in zip(whole, assign_tracks(whole), self._done, strict=True):
            track = TraceTrack(self._worker, f"episodes {place + 1:03d}")
            yield replace(span, track=track)
            for name, begin_s, end_s, args in episode.parts:
                yield TraceSpan(track, name, begin_s, end_s, args)
