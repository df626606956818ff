"""Reads fields of JSON objects that other processes wrote and that may be damaged.

A field that is missing or of another type reads as the default, so that a damaged line never stops a reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias, cast

import orjson

from protocol.events import JsonValue
from protocol.integers import MAX_SAFE_INTEGER

Event: TypeAlias = dict[str, JsonValue]


def parse_json_object(raw: bytes) -> Event | None:
    """Return the JSON object in ``raw``, or None for anything else."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return cast("Event", value) if isinstance(value, dict) else None


def read_json_object(path: Path) -> Event | None:
    """Return the JSON object in a file, or None if the file is absent or damaged."""
    try:
        return parse_json_object(path.read_bytes())
    except OSError:
        return None


def get_text(event: Event, key: str, default: str = "") -> str:
    """Return a string field."""
    value = event.get(key)
    return value if isinstance(value, str) else default


def get_number(event: Event, key: str) -> float | None:
    """Return a numeric field; None if it is missing or a boolean."""
    value = event.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def get_integer(event: Event, key: str, default: int = 0) -> int:
    """Return a numeric field as an integer; the default if JSON could not hold it exactly."""
    value = get_number(event, key)
    return default if value is None or abs(value) > MAX_SAFE_INTEGER else int(value)


def get_mapping(event: Event, key: str) -> Event:
    """Return an object field; empty if it is missing."""
    value = event.get(key)
    return value if isinstance(value, dict) else {}


def get_list(event: Event, key: str) -> list[JsonValue]:
    """Return an array field; empty if it is missing."""
    value = event.get(key)
    return value if isinstance(value, list) else []


def get_numbers(event: Event, key: str) -> list[float]:
    """Return the numbers of an array field."""
    return [
        float(item) for item in get_list(event, key) if isinstance(item, int | float) and abs(item) <= MAX_SAFE_INTEGER
    ]
