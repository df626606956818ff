"""``python -m launch.monitor runs/<id> [--port N] [--json]``: watch a run, live or finished."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import uvicorn

from launch.monitor.app import create_app
from launch.monitor.store import RunStore
from protocol.errors import UserError


def main(argv: list[str] | None = None) -> int:
    """0 when done, 2 when the person who started it can mend what is wrong.  The first line says where the page is."""
    parser = argparse.ArgumentParser(prog="longshore monitor", description="Watch a run in the browser; only reads.")
    parser.add_argument("run_dir", type=Path, help="runs/<id>")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0, the default, for a free one")
    parser.add_argument("--json", action="store_true", help="print the run's state as JSON and end")
    asked = parser.parse_args(argv)
    try:
        store = RunStore(asked.run_dir)
        if asked.json:
            store.catch_up()
            sys.stdout.write(store.view_json().decode() + "\n")
            return 0
        return _serve(store, asked.port)
    except UserError as error:
        print(f"longshore monitor: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


def _serve(store: RunStore, port: int) -> int:
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
