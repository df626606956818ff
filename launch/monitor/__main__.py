"""``python -m launch.monitor runs/<id> [--port N] [--json]``: watch a run, live or finished."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import uvicorn

from launch.monitor.app import create_app
from launch.monitor.store import RunStore
from protocol.cli.exits import EXIT_OK, main_guard
from protocol.cli.parser import Parser, parsed
from protocol.errors import UserError

_LAST_PORT = 65_535


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the page, whose address is the first line, until it is ended; or print the state once."""
    parser = Parser(prog="longshore monitor", description="Watch a run in the browser; only reads.")
    parser.add_argument("run_dir", type=Path, help="runs/<id>")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0, the default, for a free one")
    parser.add_argument("--json", action="store_true", help="print the run's state as JSON and end")
    with parsed(parser, argv) as (asked, out):
        store = RunStore(asked.run_dir)
        if asked.json:
            store.catch_up()
            out.set(orjson.loads(store.view_json()))
            return EXIT_OK
    with contextlib.suppress(KeyboardInterrupt):  # how watching ends
        _serve(store, asked.port)
    return EXIT_OK


def _serve(store: RunStore, port: int) -> None:
    if not 0 <= port <= _LAST_PORT:
        raise UserError(f"there is no port {port}, only 0 to {_LAST_PORT}: leave --port out for a free one")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UserError(f"port {port} cannot be used ({error.strerror}): leave --port out for a free one") from error
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    config = uvicorn.Config(create_app(store), log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main_guard(main))
