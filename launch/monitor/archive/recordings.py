"""Reads terminal recordings for players: sanitized, with the positions of the model's turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from launch.monitor.run_state.sanitize import TerminalSanitizer
from protocol.plain_text import sanitize_text
from protocol.run_directory.file_tail import FileTail
from protocol.run_directory.json_fields import Event, get_integer, get_text, parse_json_object
from protocol.run_directory.recording_reader import screen_size
from protocol.run_directory.terminal_recordings import turn_marker_label

MAX_BYTES = 8 << 20
"""Maximum number of bytes read; recordings are shorter."""
_MARKER = b',"m","turn '


class TurnPosition(NamedTuple):
    """The start of a turn in a recording."""

    at_s: float
    """Seconds from the start of the recording."""
    offset: int
    """Offset in the file, in bytes."""


def find_turn_positions(path: Path) -> dict[int, TurnPosition]:
    """Return turn → its start in the recording; nothing if the recording cannot be read."""
    found: dict[int, TurnPosition] = {}
    for raw, offset in _lines(path):
        if _MARKER in raw[:64]:
            match _parsed(raw):
                case [int() | float() as t, "m", str() as label] if (turn := _turn(label)) is not None:
                    found.setdefault(turn, TurnPosition(float(t), offset))
                case _:
                    pass
    return found


def read_recording_title(path: Path) -> str:
    """Return the title of a recording, which is the task's instruction."""
    for raw, _ in _lines(path):
        title = (parse_json_object(raw) or {}).get("title")
        return sanitize_text(title) if isinstance(title, str) else ""
    return ""


def read_sanitized_recording(path: Path) -> Iterator[bytes]:
    """Yield the lines of an asciicast v2 file that is safe to play; none if the file cannot be read."""
    screen = TerminalSanitizer()
    for raw, offset in _lines(path):
        if not offset and (header := parse_json_object(raw)) is not None:
            yield orjson.dumps(_safe_header(header)) + b"\n"
            continue
        match _parsed(raw):
            case [int() | float() as t, "o", str() as data]:
                yield orjson.dumps([t, "o", screen.sanitize(data)]) + b"\n"
            case [int() | float() as t, "m", str() as label]:
                yield orjson.dumps([t, "m", sanitize_text(label)]) + b"\n"
            case _:
                pass


def _safe_header(header: Event) -> Event:
    return {
        "version": 2,
        **screen_size(header)._asdict(),
        "timestamp": get_integer(header, "timestamp"),
        "title": sanitize_text(get_text(header, "title")),
    }


def _lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield complete lines with their offsets."""
    return ((raw, end - len(raw) - 1) for raw, end in FileTail(path).iter_lines(MAX_BYTES))


def _parsed(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _turn(label: str) -> int | None:
    number = label.rpartition(" ")[2]
    return int(number) if number.isascii() and number.isdigit() and turn_marker_label(int(number)) == label else None
