"""What the page at ``/`` asks for: the state, events beside it, one terminal at a time, and the newest trajectories."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from launch.monitor.recording import cast_path, read_cast
from launch.monitor.store import EVENT_FILES
from launch.monitor.tail import Cursor, RunReader
from launch.monitor.web.answers import HEARTBEAT, HEARTBEAT_S, as_json, event_stream, message, refusal
from launch.monitor.web.runs import POLL_S, Watched
from launch.monitor.web.streams import event_messages, given_cursor

_BATCH = 1_000
_STATE_S = 1.0
"""The state, which is large, is sent no oftener."""
_IDLE_POLLS_TO_END = 4


class PageApi:
    def __init__(self, watched: Watched) -> None:
        self._watched, self._run_dir = watched, watched.follower.run_dir

    def routes(self) -> list[Route]:
        return [
            Route("/api/state", self.state),
            Route("/api/events", self.events),
            Route("/api/terminals/{trajectory}", self.terminal),
            Route("/api/trajectories", self.trajectories),
            Route("/api/trajectories/{trajectory}", self.trajectory),
        ]

    async def state(self, _: Request) -> Response:
        return Response(await self._watched.state(), media_type="application/json")

    async def events(self, request: Request) -> Response:
        """``events`` messages carry what happened, with a cursor as id; ``state`` messages carry the newest view."""
        last, asked = request.headers.get("last-event-id"), request.query_params.get("cursor")
        return event_stream(self._event_stream(given_cursor(last, asked, self._watched)))

    async def _event_stream(self, cursor: Cursor) -> AsyncIterator[bytes]:
        follower = self._watched.follower
        reader = RunReader(self._run_dir, EVENT_FILES, cursor, bounds=lambda: follower.cursor)
        told, told_at, said_at = -1, 0.0, time.monotonic()
        while True:
            revision, before = follower.revision, reader.cursor
            lines = await asyncio.to_thread(reader.read, _BATCH)
            for told_message in event_messages(lines, before, reader.cursor):
                said_at = time.monotonic()
                yield told_message
            if reader.cursor != before:
                continue
            now = time.monotonic()
            if revision != told and now - told_at >= _STATE_S:
                told, told_at, said_at = revision, now, now
                yield message("state", await self._watched.state())
                continue
            due = told_at + _STATE_S if revision != told else said_at + HEARTBEAT_S
            if not await self._watched.wait(revision, max(0.01, due - now)) and revision == told:
                said_at = time.monotonic()
                yield HEARTBEAT

    async def terminal(self, request: Request) -> Response:
        """``cast`` messages carry a recording's events, with a byte offset as id; ``end``: no more will come."""
        trajectory = request.path_params["trajectory"]
        path = cast_path(self._run_dir, trajectory)
        live = trajectory in self._watched.follower.live
        if path is None or not (live or path.exists()):
            return refusal(404, f"no terminal was recorded for {trajectory!r}")
        given = request.headers.get("last-event-id") or request.query_params.get("offset") or "0"
        if not _is_offset(given):
            return refusal(400, f"offset {given!r} is not a number")
        return event_stream(self._terminal_stream(path, trajectory, int(given)))

    async def _terminal_stream(self, path: Path, trajectory: str, offset: int) -> AsyncIterator[bytes]:
        idle = 0
        while True:
            chunk = await asyncio.to_thread(read_cast, path, offset)
            if chunk.offset > offset:
                offset, idle = chunk.offset, 0
                yield message("cast", orjson.dumps(asdict(chunk)), str(offset))
                continue
            idle += 1
            if idle >= _IDLE_POLLS_TO_END and trajectory not in self._watched.follower.live:
                yield message("end", b"{}", str(offset))
                return
            if idle % int(HEARTBEAT_S / POLL_S) == 0:
                yield HEARTBEAT
            await asyncio.sleep(POLL_S)

    async def trajectories(self, request: Request) -> Response:
        """The newest lines of the buffer's index, newest first; ``next`` is the ``before`` of the page behind."""
        limit, before = request.query_params.get("limit", "100"), request.query_params.get("before", "")
        if not all(_is_offset(given) for given in (limit, before or "0")):
            return refusal(400, "limit and before are numbers")
        page = await asyncio.to_thread(
            _index_page, self._run_dir / "trajectories" / "index.jsonl", min(int(limit), 1_000), before
        )
        return as_json(page)

    async def trajectory(self, request: Request) -> Response:
        """A whole recording at once, for replay."""
        trajectory = request.path_params["trajectory"]
        path = cast_path(self._run_dir, trajectory)
        if path is None or not path.exists():
            return refusal(404, f"no terminal was recorded for {trajectory!r}")
        chunk = await asyncio.to_thread(read_cast, path, 0, 8 << 20)
        return as_json(asdict(chunk) | {"trajectory": trajectory})


def _index_page(path: Path, limit: int, before: str) -> dict[str, object]:
    """Lines that end at or before byte ``before`` (the file's end if empty), read from its last 4 MiB."""
    try:
        with path.open("rb") as file:
            end = int(before) if before else file.seek(0, 2)
            start = max(0, end - (4 << 20))
            file.seek(start)
            data = file.read(end - start)
    except OSError:
        return {"trajectories": [], "next": None}
    data = data[: data.rfind(b"\n") + 1]
    lines = data.splitlines(keepends=True)[1 if start else 0 :][-limit:]
    rest = start + len(data) - sum(map(len, lines))
    parsed = [value for raw in reversed(lines) if (value := _parsed(raw)) is not None]
    return {"trajectories": parsed, "next": rest if rest > 0 and lines else None}


def _parsed(raw: bytes) -> object | None:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _is_offset(given: str) -> bool:
    """Whether this is a number as a client of ours writes one: plain digits, and few enough for a file."""
    return given.isascii() and given.isdigit() and len(given) < 20
