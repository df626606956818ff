"""``python -m sandbox.router --workers URL,URL,… [--port 18080]``: many pool servers behind one address."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from protocol.cli.exit_codes import main_guard
from protocol.cli.numbers import integer_between, number_at_least
from protocol.cli.parser import CommandLineParser
from sandbox.http.auth import check_access, read_token
from sandbox.http.server_urls import worker_urls
from sandbox.http.serving import bind_listener, run_server
from sandbox.router.app import create_app
from sandbox.router.workers import RouterWorkers


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = CommandLineParser(prog="python -m sandbox.router", description=(__doc__ or "").split(": ", 1)[-1])
    add, environment = parser.add_argument, os.environ
    add("--workers", default=environment.get("WORKER_URLS", ""), metavar="URL,…", help="or WORKER_URLS")
    add("--host", default="127.0.0.1", help="beyond loopback: with a token, or --no-auth")
    add("--port", type=integer_between(0, 65535), default=environment.get("ROUTER_PORT", "18080"), help="0: a free one")
    add("--token-file", type=Path, help="bearer token, asked of clients and shown to workers")
    add("--no-auth", action="store_true", help="let everyone who reaches the port run programs on the workers")
    add("--forward-timeout-s", type=number_at_least(1), default=environment.get("ROUTER_FORWARD_TIMEOUT", "3900"),
        help="longest wait for a worker's answer where a request carries no deadline")  # fmt: skip
    chosen = parser.parse_args(arguments)
    token = read_token(chosen.token_file, environment)
    urls = worker_urls(chosen.workers)
    allowed = check_access(chosen.host, token, no_auth=chosen.no_auth, name="sandbox.router")
    with bind_listener(chosen.host, chosen.port) as listener:
        return run_server(create_app(lambda: RouterWorkers(urls, token, chosen.forward_timeout_s), allowed), listener)


if __name__ == "__main__":
    sys.exit(main_guard(main))
