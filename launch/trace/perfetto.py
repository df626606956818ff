"""Builds Chrome's trace event format (JSON object format), which ui.perfetto.dev and chrome://tracing open.  Pure.

Each process has its tracks as threads; times are microseconds since the window began.  Format:
"Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launch.trace.trace_events import TraceCounter, TraceEvent, TraceInstant, TraceSpan, TraceTrack
from protocol.events import JsonValue

_US = 1_000_000


def build_trace_events(pieces: Sequence[TraceEvent], zero_s: float) -> list[dict[str, JsonValue]]:
    """Return the events in the order that readers of the format like: names, then everything by its time, what
    contains before what is contained."""
    tracks = sorted({piece.track for piece in pieces})
    processes = {name: number for number, name in enumerate(dict.fromkeys(track.process for track in tracks), 1)}
    threads = {track: number for number, track in enumerate(tracks, 1)}

    def place(track: TraceTrack) -> dict[str, JsonValue]:
        return {"pid": processes[track.process], "tid": threads[track]}

    names = [_named("process_name", name, {"pid": pid, "tid": 0}) for name, pid in processes.items()]
    names += [_named("thread_name", track.name, place(track)) for track in tracks]
    ordered = sorted(pieces, key=lambda piece: (_begin(piece), -_end(piece)))
    return [*names, *(_event(piece, zero_s, place(piece.track)) for piece in ordered)]


def _named(what: str, name: str, place: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"ph": "M", "name": what, "ts": 0, **place, "args": {"name": name}}


def build_trace_file(
    pieces: Sequence[TraceEvent], zero_s: float, about: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the object of the whole file."""
    events: list[JsonValue] = [*build_trace_events(pieces, zero_s)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about)}


def _begin(piece: TraceEvent) -> float:
    return piece.begin_s if isinstance(piece, TraceSpan) else piece.at_s


def _end(piece: TraceEvent) -> float:
    return piece.end_s if isinstance(piece, TraceSpan) else piece.at_s


def _event(piece: TraceEvent, zero_s: float, place: dict[str, JsonValue]) -> dict[str, JsonValue]:
    at_us = round((_begin(piece) - zero_s) * _US)
    match piece:
        case TraceSpan():
            length_us = round((piece.end_s - zero_s) * _US) - at_us
            args = dict(piece.args)
            return {"ph": "X", "name": piece.name, "cat": "span", "ts": at_us, "dur": length_us, **place, "args": args}
        case TraceInstant():
            args = dict(piece.args)
            return {"ph": "i", "name": piece.name, "cat": "mark", "ts": at_us, "s": "p", **place, "args": args}
        case TraceCounter():
            values: dict[str, JsonValue] = dict(piece.values)
            return {"ph": "C", "name": piece.track.name, "cat": "level", "ts": at_us, **place, "args": values}
