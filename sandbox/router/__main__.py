"""``python -m sandbox.router --workers URL,URL,… [--port 18080]``: serve many pool servers behind one address."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protocol.cli.arguments import CommandArguments, Flag, Port, environment_default, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput
from sandbox.http.auth import check_access, read_token
from sandbox.http.server_urls import worker_urls
from sandbox.http.serving import bind_listener, run_server
from sandbox.router.app import create_app
from sandbox.router.workers import RouterWorkers


class RouterArguments(CommandArguments):
    """Serve many pool servers behind one address.

    Example: longshore router --workers http://10.0.0.2:18081,http://10.0.0.3:18081
    """

    workers: Annotated[str, option("URL,…")] = environment_default("WORKER_URLS", "")
    """URLs of the pool servers; default: the variable WORKER_URLS."""
    host: Annotated[str, option("HOST")] = "127.0.0.1"
    """Address to listen on; beyond loopback a token or --no-auth is required."""
    port: Port = environment_default("ROUTER_PORT", 18080)
    """Port to listen on; 0 for a free one."""
    token_file: Annotated[Path | None, option("FILE")] = None
    """File with the bearer token, for clients of the router and for the workers; or LONGSHORE_SANDBOX_TOKEN."""
    no_auth: Flag = False
    """No authentication: everyone who reaches the port can run programs on the workers."""
    forward_timeout_s: Annotated[float, option("S"), Field(ge=1)] = environment_default(
        "ROUTER_FORWARD_TIMEOUT", 3900.0
    )
    """Timeout of a worker's answer if the request has no deadline."""


def run(given: RouterArguments, out: JsonOutput) -> int:
    """Serve until SIGINT or SIGTERM."""
    del out
    token = read_token(given.token_file, os.environ)
    urls = worker_urls(given.workers)
    allowed = check_access(given.host, token, no_auth=given.no_auth, name="sandbox.router")
    with bind_listener(given.host, given.port) as listener:
        return run_server(create_app(lambda: RouterWorkers(urls, token, given.forward_timeout_s), allowed), listener)


COMMAND = Command("sandbox.router", RouterArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
