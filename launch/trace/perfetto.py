"""Chrome's trace event format (JSON object format), which ui.perfetto.dev and chrome://tracing open.  Pure.

A process is a lane of its own with its tracks as threads in it; times are microseconds since the window began.  Format:
"Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launch.trace.spans import Level, Mark, Piece, Span, Track
from protocol.events import Json

_US = 1_000_000


def trace_events(pieces: Sequence[Piece], zero_s: float) -> list[dict[str, Json]]:
    """In the order that the format's readers like: names, then everything by its time, what contains before what is
    contained."""
    tracks = sorted({piece.track for piece in pieces})
    processes = {name: number for number, name in enumerate(dict.fromkeys(track.process for track in tracks), 1)}
    threads = {track: number for number, track in enumerate(tracks, 1)}

    def place(track: Track) -> dict[str, Json]:
        return {"pid": processes[track.process], "tid": threads[track]}

    names = [_named("process_name", name, {"pid": pid, "tid": 0}) for name, pid in processes.items()]
    names += [_named("thread_name", track.name, place(track)) for track in tracks]
    ordered = sorted(pieces, key=lambda piece: (_begin(piece), -_end(piece)))
    return [*names, *(_event(piece, zero_s, place(piece.track)) for piece in ordered)]


def _named(what: str, name: str, place: dict[str, Json]) -> dict[str, Json]:
    return {"ph": "M", "name": what, "ts": 0, **place, "args": {"name": name}}


def trace_file(pieces: Sequence[Piece], zero_s: float, about: Mapping[str, Json]) -> dict[str, Json]:
    """The whole file's object."""
    events: list[Json] = [*trace_events(pieces, zero_s)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about)}


def _begin(piece: Piece) -> float:
    return piece.begin_s if isinstance(piece, Span) else piece.at_s


def _end(piece: Piece) -> float:
    return piece.end_s if isinstance(piece, Span) else piece.at_s


def _event(piece: Piece, zero_s: float, place: dict[str, Json]) -> dict[str, Json]:
    at_us = round((_begin(piece) - zero_s) * _US)
    match piece:
        case Span():
            length_us = round((piece.end_s - zero_s) * _US) - at_us
            args = dict(piece.args)
            return {"ph": "X", "name": piece.name, "cat": "span", "ts": at_us, "dur": length_us, **place, "args": args}
        case Mark():
            args = dict(piece.args)
            return {"ph": "i", "name": piece.name, "cat": "mark", "ts": at_us, "s": "p", **place, "args": args}
        case Level():
            values: dict[str, Json] = dict(piece.values)
            return {"ph": "C", "name": piece.track.name, "cat": "level", "ts": at_us, **place, "args": values}
