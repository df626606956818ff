"""``python -m launch.monitor runs/<id> [--tui] [--host H] [--port N] [--json]``: watch a run, live or finished."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import uvicorn

from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import as_stopped, encode_run_view
from launch.monitor.web.app import create_monitor_app
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from protocol.run_directory.run_status import is_running

TOKEN = "LONGSHORE_MONITOR_TOKEN"  # noqa: S105  the variable's name
_LAST_PORT = 65_535
_LOOPBACK = "127.0.0.1"
_LIGHT = (";7", ";15")
"""Endings of ``COLORFGBG`` that mean a light background."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the page, whose address is the first line, until it is ended; or show the run in this terminal; or print
    its state once."""
    parser = CommandLineParser(
        prog="python -m launch.monitor",
        description="Watch a run in the browser or here; only reads.",
        epilog="Example: python -m launch.monitor runs/my-run",
    )
    parser.add_argument("run_dir", type=Path, help="runs/<id>")
    parser.add_argument("--host", default=_LOOPBACK, help=f"address to listen on; beyond {_LOOPBACK} with a token")
    parser.add_argument("--port", type=int, default=0, help="port of it; 0, the default, for a free one")
    parser.add_argument("--tui", action="store_true", help="show the run in this terminal; ? lists the keys")
    parser.add_argument("--json", action="store_true", help="print the run's state as JSON and end")
    with parse_command_line(parser, argv) as (asked, out):
        if asked.tui:
            _check_terminal(asked.json)
        if asked.json:
            store = RunStore(asked.run_dir)
            store.catch_up()
            view = store.view() if is_running(asked.run_dir, look_only=True) else as_stopped(store.view())
            out.set_result(orjson.loads(encode_run_view(view)))
            return EXIT_OK
    with contextlib.suppress(KeyboardInterrupt):  # how watching ends
        if asked.tui:
            _show(asked.run_dir)
        else:
            _serve(asked.run_dir, asked.host, asked.port)
    return EXIT_OK


def _check_terminal(json: bool) -> None:
    if json:
        raise UserError("--tui shows a run and --json prints its state: give one of them")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--tui needs a terminal, and this is none: leave it out for the page, or give --json")


def _show(run_dir: Path) -> None:
    from launch.monitor.tui.app import MonitorApp

    MonitorApp(run_dir, light=os.environ.get("COLORFGBG", "").endswith(_LIGHT)).run()


def _serve(run_dir: Path, host: str, port: int) -> None:
    token = "" if _is_loopback(host) else os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    app = create_monitor_app(run_dir, token)
    listener = _listener(host, port)
    print(_address(host, listener.getsockname()[1], token), flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    if not 0 <= port <= _LAST_PORT:
        raise UserError(f"there is no port {port}, only 0 to {_LAST_PORT}: leave --port out for a free one")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} of {host} cannot be used ({error.strerror}): leave --port out for a free one, and --host for "
            "this machine alone"
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(host: str, port: int, token: str) -> str:
    """Return the address that a browser opens."""
    name = socket.gethostname() if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104  compared with
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


if __name__ == "__main__":
    sys.exit(main_guard(main))
