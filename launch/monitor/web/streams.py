"""Event streams.  Ids are cursors of byte offsets in the run's own files, so that a client that comes back with one, to
this monitor or to another, misses nothing and sees nothing twice.  What a client does not read stays in the files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from launch.monitor.archive.recordings import MAX_BYTES
from launch.monitor.describe import describe
from launch.monitor.plain import SafeTerminal, plain, plain_json
from launch.monitor.recording import CastChunk, cast_path, read_cast
from launch.monitor.shapes import Refusal
from launch.monitor.store import EVENT_FILES
from launch.monitor.tail import Cursor, Event, Line, RunReader, format_cursor, parse_cursor
from launch.monitor.web.answers import HEARTBEAT, HEARTBEAT_S, RefusedError, message
from launch.monitor.web.runs import POLL_S, Watched

MAX_WATCHED = 64
HEAD_S = 1.0
MESSAGE_EVENTS = 50
_BATCH = 1_000
_END_BYTES = 64 << 10
_IDLE_POLLS_TO_END = 4


def given_cursor(last_id: str | None, asked: str | None, watched: Watched) -> Cursor:
    """Where a stream of events begins.  Raises RefusedError."""
    text = last_id or asked or ""
    if text == "now":
        return watched.follower.cursor
    try:
        return parse_cursor(text)
    except ValueError as error:
        raise RefusedError(400, f"the cursor is not one of ours: {error}") from None


async def events(watched: Watched, cursor: Cursor) -> AsyncIterator[bytes]:
    """``events`` with ids, ``head`` between them, ``gone`` at last.  Never ahead of what lists know."""
    follower = watched.follower
    reader = RunReader(follower.run_dir, EVENT_FILES, cursor, bounds=lambda: follower.cursor)
    told, told_at, said_at = -1, 0.0, time.monotonic()
    while True:
        revision, before = follower.revision, reader.cursor
        lines = await asyncio.to_thread(reader.read, _BATCH)
        for told_message in event_messages(lines, before, reader.cursor):
            said_at = time.monotonic()
            yield told_message
        if not reader.at_end:
            continue
        if follower.gone:
            yield message("gone", orjson.dumps(Refusal(follower.head().problem)))
            return
        now = time.monotonic()
        if revision != told and now - told_at >= HEAD_S:
            told, told_at, said_at = revision, now, now
            yield message("head", orjson.dumps(follower.head()))
            continue
        due = told_at + HEAD_S if revision != told else said_at + HEARTBEAT_S
        if not await watched.wait(revision, max(0.01, due - now)) and revision == told:
            said_at = time.monotonic()
            yield HEARTBEAT


def event_messages(lines: Sequence[Line], before: Cursor, after: Cursor) -> Iterator[bytes]:
    """``lines``, read from ``before`` to ``after``, in messages so small that a client on a poor line gets on."""
    at = dict(before)
    for first in range(0, len(lines), MESSAGE_EVENTS):
        part = lines[first : first + MESSAGE_EVENTS]
        at |= {line.source: line.end for line in part}
        cursor = after if first + MESSAGE_EVENTS >= len(lines) else at
        yield message("events", orjson.dumps(described(part)), format_cursor(cursor))


def described(lines: Sequence[Line]) -> list[dict[str, object]]:
    """Each event, made harmless, with its sentence if there is one."""
    found: list[dict[str, object]] = []
    for line in lines:
        if line.value is not None:
            said = describe(line.value)
            found.append({"event": _clean(line.value), "line": said and asdict(said)})
    return found


def _clean(event: Event) -> Event:
    return {name: plain_json(value) for name, value in event.items()}


def watched_recordings(run_dir: Path, names: Sequence[str]) -> Mapping[str, Path]:
    """The recordings of these names.  Raises RefusedError for none, too many, or what no recording is called."""
    paths = {name: cast_path(run_dir, name) for name in names if name}
    known = {name: path for name, path in paths.items() if path is not None}
    if not known or len(known) < len(paths) or len(known) > MAX_WATCHED:
        raise RefusedError(400, f"watch=NAME,NAME names 1 to {MAX_WATCHED} recordings")
    return known


def given_places(paths: Mapping[str, Path], last_id: str | None, asked: str | None) -> Cursor:
    """Where in each recording a stream begins.  Raises RefusedError."""
    try:
        cursor = parse_cursor(last_id or asked or "")
    except ValueError as error:
        raise RefusedError(400, f"the cursor is not one of ours: {error}") from None
    return {name: at for name, at in cursor.items() if name in paths}


async def terminals(
    watched: Watched, paths: Mapping[str, Path], places: Cursor, *, from_end: bool
) -> AsyncIterator[bytes]:
    """``cast`` of whichever recording has grown, ``end`` after the last event of each; ends with all of them."""
    at = {name: places.get(name, 0) for name in paths}
    screens = {name: SafeTerminal() for name in paths}
    idle = dict.fromkeys(paths, 0)
    said_at = time.monotonic()
    while at:
        grown = await asyncio.to_thread(_read_all, paths, at, from_end=from_end)
        live = watched.follower.live
        for name, chunk in grown.items():
            at[name], idle[name], said_at = chunk.offset, 0, time.monotonic()
            safe = replace(
                chunk,
                events=[(t, screens[name].feed(text)) for t, text in chunk.events],
                title=plain(chunk.title),
            )
            yield message("cast", orjson.dumps({"trajectory": name} | asdict(safe)), format_cursor(at))
        for name in [name for name in at if name not in grown]:
            idle[name] += 1
            if idle[name] >= _IDLE_POLLS_TO_END and (name not in live or watched.follower.gone):
                yield message("end", orjson.dumps({"trajectory": name}), format_cursor(at))
                del at[name]
        if not grown:
            if time.monotonic() - said_at >= HEARTBEAT_S:
                said_at = time.monotonic()
                yield HEARTBEAT
            await asyncio.sleep(POLL_S)


def _read_all(paths: Mapping[str, Path], at: Mapping[str, int], *, from_end: bool) -> dict[str, CastChunk]:
    """What has come in each; of one that is begun at its end, its header and its last events."""
    found: dict[str, CastChunk] = {}
    for name, offset in at.items():
        if _size(paths[name]) <= offset:
            continue
        chunk = _end_of(paths[name]) if from_end and not offset else read_cast(paths[name], offset)
        if chunk.offset > offset:
            found[name] = chunk
    return found


def _end_of(path: Path) -> CastChunk:
    header = read_cast(path, 0, 1)
    start = _size(path) - _END_BYTES
    if start <= header.offset:
        return read_cast(path, 0, MAX_BYTES)
    rest = read_cast(path, start, MAX_BYTES)  # its first line, which is cut, is left out as a damaged one
    return replace(header, events=rest.events, offset=rest.offset)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
