"""``longshore router --servers URL,URL,… [--port 18080]``: serve many pool servers behind one address."""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import Field

from protocol.cli.arguments import Port, environment_default, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput
from sandbox.http.auth import AccessOptions
from sandbox.http.server_urls import parse_server_urls
from sandbox.http.serving import bind_listener, run_server
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers


class RouterArguments(AccessOptions):
    """Serve many pool servers behind one address. The token is that of the router's clients and of the pool servers.

    Example: longshore router --servers http://10.0.0.2:18081,http://10.0.0.3:18081
    """

    servers: Annotated[str, option("URL,…")] = environment_default("WORKER_URLS", "")
    """URLs of the pool servers; default: the variable WORKER_URLS."""
    port: Port = environment_default("ROUTER_PORT", 18080)
    """Port to listen on; 0 for a free one."""
    forward_timeout_s: Annotated[float, option("S"), Field(ge=1)] = environment_default(
        "ROUTER_FORWARD_TIMEOUT", 3900.0
    )
    """Timeout of a server's answer if the request has no deadline."""


def run(given: RouterArguments, out: JsonOutput) -> int:
    """Serve until SIGINT or SIGTERM."""
    del out
    urls, access = parse_server_urls(given.servers), given.access()
    with bind_listener(given.host, given.port) as listener:
        app = create_app(lambda: RoutedPoolServers(urls, access.token, given.forward_timeout_s), access)
        return run_server(app, listener)


COMMAND = Command("router", RouterArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
