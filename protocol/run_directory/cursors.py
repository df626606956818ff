"""Positions in the JSON-lines files of a run, and their text form for event-stream ids."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote

Cursor: TypeAlias = dict[str, int]
"""Source (path in the run directory, without ``.jsonl``) → byte offset of the first unread byte."""


def cursor_at_end(run_dir: Path, patterns: tuple[str, ...]) -> Cursor:
    """Return the ends of the files as they are now: a reader that starts there sees only new lines."""
    paths = [path for pattern in patterns for path in run_dir.glob(pattern)]
    return {path.relative_to(run_dir).with_suffix("").as_posix(): path.stat().st_size for path in paths}


def format_cursor(cursor: Cursor) -> str:
    """Return a cursor as one line of text."""
    return ",".join(f"{quote(source, safe='/')}:{offset}" for source, offset in sorted(cursor.items()))


def parse_cursor(text: str) -> Cursor:
    """Parse the text form of a cursor.  Raises ValueError for anything that :func:`format_cursor` did not write."""
    cursor: Cursor = {}
    for part in filter(None, text.split(",")):
        source, colon, offset = part.rpartition(":")
        if not colon or not offset.isascii() or not offset.isdigit():
            raise ValueError(f"{part!r} is not source:offset")
        cursor[unquote(source)] = int(offset)
    return cursor
