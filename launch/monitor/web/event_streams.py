"""Server-sent event streams of a run's events and terminals.

Event ids are cursors of byte offsets in the run's files, so that a client that reconnects, to this monitor or another
one, misses nothing and gets nothing twice.  A slow client costs no memory, as the data stays in the files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from launch.monitor.api_types import ErrorResponse
from launch.monitor.archive.recordings import MAX_BYTES
from launch.monitor.run_state.event_text import describe_event
from launch.monitor.run_state.sanitize import TerminalSanitizer, sanitize_json
from launch.monitor.web.responses import HEARTBEAT, HEARTBEAT_S, ApiError, event_message
from launch.monitor.web.watched_runs import POLL_S, WatchedRun
from protocol.plain_text import sanitize_text
from protocol.run_directory.cursors import Cursor, format_cursor, parse_cursor
from protocol.run_directory.json_fields import Event
from protocol.run_directory.layout import EVENT_FILES
from protocol.run_directory.recording_reader import RecordingChunk, read_recording, recording_path
from protocol.run_directory.run_tail import JsonlLine, RunTail

MAX_WATCHED = 64
HEAD_S = 1.0
MESSAGE_EVENTS = 50
_BATCH = 1_000
_END_BYTES = 64 << 10
_IDLE_POLLS_TO_END = 4


def parse_event_cursor(last_id: str | None, given: str | None, watched: WatchedRun) -> Cursor:
    """Return the start of an event stream.  Raises ApiError."""
    text = last_id or given or ""
    if text == "now":
        return watched.follower.cursor
    try:
        return parse_cursor(text)
    except ValueError as error:
        raise ApiError(400, f"the cursor is invalid: {error}") from None


async def stream_events(watched: WatchedRun, cursor: Cursor) -> AsyncIterator[bytes]:
    """Stream ``events`` with ids, ``head`` in between and ``run_removed`` at the end; never ahead of the lists."""
    follower = watched.follower
    reader = RunTail(follower.run_dir, EVENT_FILES, cursor, bounds=lambda: follower.cursor)
    sent, sent_at, last_message_at = -1, 0.0, time.monotonic()
    while True:
        revision, before = follower.revision, reader.cursor
        lines = await asyncio.to_thread(reader.read, _BATCH)
        for message in encode_event_messages(lines, before, reader.cursor):
            last_message_at = time.monotonic()
            yield message
        if not reader.at_end:
            continue
        if follower.is_gone:
            yield event_message("run_removed", orjson.dumps(ErrorResponse(follower.head().problem)))
            return
        now = time.monotonic()
        if revision != sent and now - sent_at >= HEAD_S:
            sent, sent_at, last_message_at = revision, now, now
            yield event_message("head", orjson.dumps(follower.head()))
            continue
        due = sent_at + HEAD_S if revision != sent else last_message_at + HEARTBEAT_S
        if not await watched.wait_for_change(revision, max(0.01, due - now)) and revision == sent:
            last_message_at = time.monotonic()
            yield HEARTBEAT


def encode_event_messages(lines: Sequence[JsonlLine], before: Cursor, after: Cursor) -> Iterator[bytes]:
    """Yield ``lines``, read from ``before`` to ``after``, as small messages, so that a slow client makes progress."""
    at = dict(before)
    for first in range(0, len(lines), MESSAGE_EVENTS):
        part = lines[first : first + MESSAGE_EVENTS]
        at |= {line.source: line.end_offset for line in part}
        cursor = after if first + MESSAGE_EVENTS >= len(lines) else at
        yield event_message("events", orjson.dumps(describe_lines(part)), format_cursor(cursor))


def describe_lines(lines: Sequence[JsonlLine]) -> list[dict[str, object]]:
    """Return each event, sanitized, with its log line if there is one."""
    found: list[dict[str, object]] = []
    for line in lines:
        if line.value is not None:
            text = describe_event(line.value)
            found.append({"event": _clean(line.value), "line": text and asdict(text)})
    return found


def _clean(event: Event) -> Event:
    return {name: sanitize_json(value) for name, value in event.items()}


def find_recordings(run_dir: Path, names: Sequence[str]) -> Mapping[str, Path]:
    """Return the paths of recordings.  Raises ApiError for no name, too many, or an invalid one."""
    paths = {name: recording_path(run_dir, name) for name in names if name}
    known = {name: path for name, path in paths.items() if path is not None}
    if not known or len(known) < len(paths) or len(known) > MAX_WATCHED:
        raise ApiError(400, f"watch=NAME,NAME names 1 to {MAX_WATCHED} recordings")
    return known


def parse_recording_cursor(paths: Mapping[str, Path], last_id: str | None, given: str | None) -> Cursor:
    """Return the start of a stream in each recording.  Raises ApiError."""
    try:
        cursor = parse_cursor(last_id or given or "")
    except ValueError as error:
        raise ApiError(400, f"the cursor is invalid: {error}") from None
    return {name: at for name, at in cursor.items() if name in paths}


async def stream_terminals(
    watched: WatchedRun, paths: Mapping[str, Path], offsets: Cursor, *, from_end: bool
) -> AsyncIterator[bytes]:
    """Stream ``cast`` when a recording has grown and ``end`` after its last event, until all have ended."""
    at = {name: offsets.get(name, 0) for name in paths}
    screens = {name: TerminalSanitizer() for name in paths}
    idle = dict.fromkeys(paths, 0)
    last_message_at = time.monotonic()
    while at:
        grown = await asyncio.to_thread(_read_all, paths, at, from_end=from_end)
        live = watched.follower.live_recordings
        for name, chunk in grown.items():
            at[name], idle[name], last_message_at = chunk.offset, 0, time.monotonic()
            safe = replace(
                chunk,
                events=[(t, screens[name].sanitize(text)) for t, text in chunk.events],
                title=sanitize_text(chunk.title),
            )
            yield event_message("cast", orjson.dumps({"trajectory": name} | asdict(safe)), format_cursor(at))
        for name in [name for name in at if name not in grown]:
            idle[name] += 1
            if idle[name] >= _IDLE_POLLS_TO_END and (name not in live or watched.follower.is_gone):
                yield event_message("end", orjson.dumps({"trajectory": name}), format_cursor(at))
                del at[name]
        if not grown:
            if time.monotonic() - last_message_at >= HEARTBEAT_S:
                last_message_at = time.monotonic()
                yield HEARTBEAT
            await asyncio.sleep(POLL_S)


def _read_all(paths: Mapping[str, Path], at: Mapping[str, int], *, from_end: bool) -> dict[str, RecordingChunk]:
    """Return what each recording has gained; one that is read from its end gives its header and last events."""
    found: dict[str, RecordingChunk] = {}
    for name, offset in at.items():
        if _size(paths[name]) <= offset:
            continue
        chunk = _end_of(paths[name]) if from_end and not offset else read_recording(paths[name], offset)
        if chunk.offset > offset:
            found[name] = chunk
    return found


def _end_of(path: Path) -> RecordingChunk:
    header = read_recording(path, 0, 1)
    start = _size(path) - _END_BYTES
    if start <= header.offset:
        return read_recording(path, 0, MAX_BYTES)
    rest = read_recording(path, start, MAX_BYTES)  # the cut first line is skipped as damaged
    return replace(header, events=rest.events, offset=rest.offset)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
