"""Reads terminal recordings while they grow.  Their content is untrusted, and only parsed here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import orjson

from protocol.run_directory.file_tail import FileTail
from protocol.run_directory.json_fields import Event, parse_json_object

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
RecordingEvent: TypeAlias = tuple[float, str]
"""Seconds since the recording began, and the output."""


@dataclass(frozen=True, slots=True)
class RecordingChunk:
    events: list[RecordingEvent]
    offset: int
    """Offset of the next read."""
    width: int = 80
    height: int = 24
    title: str = ""


class ScreenSize(NamedTuple):
    """Size of a terminal, in characters."""

    width: int
    height: int


def recording_path(run_dir: Path, trajectory: str) -> Path | None:
    """Return the path of a trajectory's recording; None for an invalid trajectory name."""
    return run_dir / "terminals" / f"{trajectory}.cast" if _NAME.fullmatch(trajectory) else None


def read_recording(path: Path, offset: int = 0, max_bytes: int = 1 << 18) -> RecordingChunk:
    """Return the complete events from ``offset`` on.  An absent file is empty; an incomplete last line is left for the
    next read, and damaged lines are skipped."""
    file = FileTail(path, offset)
    events: list[RecordingEvent] = []
    width, height, title = 80, 24, ""
    for raw, _ in file.read_lines(max_bytes).lines:
        if raw.startswith(b"{"):
            header = parse_json_object(raw) or {}
            width, height = screen_size(header)
            title = str(header.get("title") or "")
        elif (event := _event(raw)) is not None:
            events.append(event)
    return RecordingChunk(events, file.offset, width, height, title)


def screen_size(header: Event) -> ScreenSize:
    """Return the size that a recording's first line states, within what a player draws."""
    return ScreenSize(_bounded(header.get("width"), 80), _bounded(header.get("height"), 24))


def _event(raw: bytes) -> RecordingEvent | None:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    match cast("object", value):
        case [int() | float() as t, "o", str() as data]:
            return float(t), data
        case _:
            return None


def _bounded(value: object, default: int) -> int:
    return min(max(value, 20), 400) if isinstance(value, int) else default
