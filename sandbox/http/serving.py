"""Runs a server as a process: it binds first, prints one line with its URL, and ends on a signal."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from protocol.cli.exit_codes import EXIT_OK
from protocol.errors import UserError
from protocol.plain_text import sanitize_line, sanitize_text
from protocol.processes import open_files
from sandbox.http.application import connections_of
from sandbox.http.uvicorn_connections import server_config

STOP_TIMEOUT_S = 10
"""Seconds that running requests have after the signal."""
DrainCallback = Callable[[float], Awaitable[None]]
"""Stops accepting work, and ends what is still running after the given number of seconds."""


def bind_listener(host: str, port: int) -> socket.socket:
    """Bind a socket; port 0 chooses a free one. Raises UserError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise UserError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another port with --port, or --host 127.0.0.1"
        ) from error
    return listener


def listener_url(listener: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: Starlette, listener: socket.socket, drain: DrainCallback | None = None) -> int:
    """Serve until SIGINT or SIGTERM, then return 0. Prints the URL on standard output once the server answers.

    The server answers until ``drain`` has ended, so that waiting clients get a reply. Exceptions that the application
    raises when it starts or stops are raised here; the server itself would only log them.
    """
    open_files.raise_open_file_limit()
    logged = logging.StreamHandler()
    logged.setFormatter(PlainTextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[logged])
    config = server_config(
        app, connections_of(app), access_log=False, lifespan="off", timeout_graceful_shutdown=STOP_TIMEOUT_S,
        server_header=False,
    )  # fmt: skip
    server = _Announced(config, listener_url(listener), app.router.lifespan_context(app), drain)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)  # the server raises its signal again once it has ended: that is not a failure
    server.run(sockets=[listener])
    return EXIT_OK


class PlainTextFormatter(logging.Formatter):
    """Writes each message as one line of text, and each line of a traceback behind a ``|``: both may quote a client or
    a task, whose lines must not look like another message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        return sanitize_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return sanitize_text(super().format(record)).replace("\n", "\n  | ")


def _stopped(number: int, frame: FrameType | None) -> None:
    del number, frame


class _Announced(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        url: str,
        running: AbstractAsyncContextManager[object],
        drain: DrainCallback | None,
    ) -> None:
        super().__init__(config)
        self._url, self._running, self._drain = url, running, drain

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with self.capture_signals():
            async with self._running:
                if not self.should_exit:  # no signal arrived meanwhile
                    await self._serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(f"{self._url}/\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            if self._drain is not None:
                await self._drain(STOP_TIMEOUT_S)
        finally:
            await super().shutdown(sockets)
