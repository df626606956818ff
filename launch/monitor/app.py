"""The monitor's HTTP side: a page, the run's state, and live streams that resume exactly.

It only reads the run directory, listens on loopback and answers no other host name.  One poller owns the store and
publishes immutable bytes; requests read those, so none can slow another.  An event stream's id is a cursor of byte
offsets: a client that comes back with it misses nothing and sees nothing twice, also after the monitor restarted.
A stream ends when its client leaves or the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from launch.monitor.describe import describe
from launch.monitor.recording import cast_path, read_cast
from launch.monitor.store import EVENT_FILES, RunStore
from launch.monitor.tail import Cursor, Line, RunReader, format_cursor, parse_cursor

STATIC = Path(__file__).parent / "static"
POLL_S = 0.25
HEARTBEAT_S = 15.0
_BATCH = 500
_IDLE_POLLS_TO_END = 4
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class SecurityHeaders:
    """Puts the same strict headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Published:
    """The newest view, for every reader at once."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.revision = 0
        self.body = b""
        self.live: frozenset[str] = frozenset()
        self.over = False

    async def keep_fresh(self) -> None:
        """Poll until cancelled."""
        while True:
            more = await asyncio.to_thread(self.refresh)
            await asyncio.sleep(0 if more else POLL_S)

    def refresh(self) -> bool:
        """Take in what is new; True if there may be more."""
        taken = self._store.poll()
        if taken or not self.body:
            self.body = self._store.view_json()
            self.live = frozenset(self._store.state.running)
            self.over = self._store.state.header.ok is not None
            self.revision += 1
        return taken > 0


def create_app(store: RunStore) -> Starlette:
    """The application for one run."""
    published = Published(store)
    handlers = _Handlers(store.run_dir, published)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await asyncio.to_thread(published.refresh)
        async with asyncio.TaskGroup() as group:
            poller = group.create_task(published.keep_fresh())
            try:
                yield
            finally:
                poller.cancel()

    return Starlette(
        routes=[
            Route("/", handlers.page),
            Route("/api/state", handlers.state),
            Route("/api/events", handlers.events),
            Route("/api/terminals/{trajectory}", handlers.terminal),
            Route("/api/trajectories", handlers.trajectories),
            Route("/api/trajectories/{trajectory}", handlers.trajectory),
            Route("/api/{rest:path}", handlers.unknown),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/{rest:path}", handlers.unknown),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"]),
        ],
        lifespan=lifespan,
    )


class _Handlers:
    def __init__(self, run_dir: Path, published: Published) -> None:
        self._run_dir, self._published = run_dir, published

    async def page(self, _: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def unknown(self, request: Request) -> Response:
        return _error(404, f"there is no {request.url.path} here; the page is at /")

    async def state(self, _: Request) -> Response:
        return Response(self._published.body, media_type="application/json")

    async def events(self, request: Request) -> Response:
        """``events`` messages carry what happened, with a cursor as id; ``state`` messages carry the newest view."""
        given = request.headers.get("last-event-id") or request.query_params.get("cursor") or ""
        try:
            cursor = parse_cursor(given)
        except ValueError as error:
            return _error(400, f"the cursor is not one of ours: {error}")
        return _stream(self._event_stream(cursor))

    async def _event_stream(self, cursor: Cursor) -> AsyncIterator[bytes]:
        reader = RunReader(self._run_dir, EVENT_FILES, cursor)
        seen, quiet_s = -1, 0.0
        while True:
            lines = await asyncio.to_thread(reader.read, _BATCH)
            if lines:
                yield _sse("events", orjson.dumps(_described(lines)), format_cursor(reader.cursor))
            if self._published.revision != seen and self._published.body:
                seen = self._published.revision
                yield _sse("state", self._published.body)
            elif not lines:
                quiet_s += POLL_S
                if quiet_s >= HEARTBEAT_S:
                    yield b": still here\n\n"
                    quiet_s = 0.0
            await asyncio.sleep(0 if lines else POLL_S)

    async def terminal(self, request: Request) -> Response:
        """``cast`` messages carry a recording's events, with a byte offset as id; ``end``: no more will come."""
        trajectory = request.path_params["trajectory"]
        path = cast_path(self._run_dir, trajectory)
        live = trajectory in self._published.live
        if path is None or not (live or path.exists()):
            return _error(404, f"no terminal was recorded for {trajectory!r}")
        given = request.headers.get("last-event-id") or request.query_params.get("offset") or "0"
        if not _is_offset(given):
            return _error(400, f"offset {given!r} is not a number")
        return _stream(self._terminal_stream(path, trajectory, int(given)))

    async def _terminal_stream(self, path: Path, trajectory: str, offset: int) -> AsyncIterator[bytes]:
        idle = 0
        while True:
            chunk = await asyncio.to_thread(read_cast, path, offset)
            if chunk.offset > offset:
                offset, idle = chunk.offset, 0
                yield _sse("cast", orjson.dumps(asdict(chunk)), str(offset))
                continue
            idle += 1
            if idle >= _IDLE_POLLS_TO_END and trajectory not in self._published.live:
                yield _sse("end", b"{}", str(offset))
                return
            if idle % int(HEARTBEAT_S / POLL_S) == 0:
                yield b": still here\n\n"
            await asyncio.sleep(POLL_S)

    async def trajectories(self, request: Request) -> Response:
        """The newest lines of the buffer's index, newest first; ``next`` is the ``before`` of the page behind."""
        limit, before = request.query_params.get("limit", "100"), request.query_params.get("before", "")
        if not all(_is_offset(given) for given in (limit, before or "0")):
            return _error(400, "limit and before are numbers")
        page = await asyncio.to_thread(
            _index_page, self._run_dir / "trajectories" / "index.jsonl", min(int(limit), 1_000), before
        )
        return Response(orjson.dumps(page), media_type="application/json")

    async def trajectory(self, request: Request) -> Response:
        """A whole recording at once, for replay."""
        trajectory = request.path_params["trajectory"]
        path = cast_path(self._run_dir, trajectory)
        if path is None or not path.exists():
            return _error(404, f"no terminal was recorded for {trajectory!r}")
        chunk = await asyncio.to_thread(read_cast, path, 0, 8 << 20)
        return Response(orjson.dumps(asdict(chunk) | {"trajectory": trajectory}), media_type="application/json")


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


def _described(lines: list[Line]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for line in lines:
        if line.value is not None:
            said = describe(line.value)
            found.append({"event": line.value, "line": said and asdict(said)})
    return found


def _sse(name: str, data: bytes, id_: str = "") -> bytes:
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


def _stream(body: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(body, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _is_offset(given: str) -> bool:
    """Whether this is a number as a client of ours writes one: plain digits, and few enough for a file."""
    return given.isascii() and given.isdigit() and len(given) < 20


def _error(status: int, message: str) -> Response:
    return Response(orjson.dumps({"error": message}), status_code=status, media_type="application/json")
