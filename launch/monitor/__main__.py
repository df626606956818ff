"""``longshore monitor RUN [--tui] [--host H] [--port N] [--json]``: watch a run, live or finished."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Annotated

import orjson
import uvicorn
from pydantic import Field

from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import encode_run_view, with_status
from launch.monitor.web.access import TOKEN_VARIABLE
from launch.monitor.web.app import create_monitor_app
from protocol.cli.arguments import CommandArguments, Flag, JsonFlag, Port, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError
from protocol.processes.loopback import is_loopback
from protocol.processes.malloc_arenas import share_malloc_arena
from protocol.run_directory.run_arguments import RunPath
from protocol.run_directory.run_status import read_run_status
from sandbox.http.connections import OpenConnections
from sandbox.http.serving import bind_listener
from sandbox.http.uvicorn_connections import server_config

_LOOPBACK = "127.0.0.1"
_LIGHT = (";7", ";15")
"""Suffixes of ``COLORFGBG`` that mean a light background."""


_JSON = "Print the run's state once as one JSON object, and exit."


class MonitorArguments(CommandArguments):
    """Watch a run, live or finished, in the browser or in this terminal. Only reads the run's files.

    Example: longshore monitor my-run
    """

    run: RunPath
    host: Annotated[str, option("HOST")] = _LOOPBACK
    """Address to listen on; the printed address has the token in LONGSHORE_MONITOR_TOKEN, beyond loopback else a new
    one."""
    port: Port = 0
    """Port to listen on; 0 for a free one."""
    tui: Flag = False
    """Show the run in this terminal; ? lists the keys."""
    as_json: Annotated[JsonFlag, Field(description=_JSON)] = False


def run(given: MonitorArguments, out: JsonOutput) -> None:
    """Serve the page until interrupted, after printing its address; or show the terminal UI; or print the state
    once."""
    if given.tui:
        _check_terminal(given.as_json)
    if given.as_json:
        store = RunStore(given.run)
        store.catch_up()
        view = with_status(store.view(), read_run_status(given.run, look_only=True))
        out.set_result(orjson.loads(encode_run_view(view)))
        return
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        if given.tui:
            _show(given.run)
        else:
            _serve(given.run, given.host, given.port)


def _check_terminal(json: bool) -> None:
    if json:
        raise UserError("--tui and --json exclude each other: give one of them")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--tui needs a terminal: leave it out for the page, or give --json")


def _show(run_dir: Path) -> None:
    from launch.monitor.tui.app import MonitorApp

    MonitorApp(run_dir, light=os.environ.get("COLORFGBG", "").endswith(_LIGHT)).run()


def _serve(run_dir: Path, host: str, port: int) -> None:
    share_malloc_arena()  # requests are answered in changing threads, and all keep what they read
    token = os.environ.get(TOKEN_VARIABLE, "") or ("" if is_loopback(host) else secrets.token_urlsafe(24))
    app = create_monitor_app(run_dir, token)
    listener = bind_listener(host, port)
    output_console().print(_address(host, listener.getsockname()[1], token))
    config = server_config(app, OpenConnections(), timeout_graceful_shutdown=1, lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


def _address(host: str, port: int, token: str) -> str:
    """Return the address that a browser opens."""
    name = socket.gethostname() if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104  compared with
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


COMMAND = Command("monitor", MonitorArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
