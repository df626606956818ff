"""``python -m launch.environment …``: run whole episodes here for runs elsewhere, each beside its sandbox.

Stopped by SIGTERM or Ctrl-C, it begins nothing more, and ends its episodes and their sandboxes.  Killed, it leaves
sandboxes that end by themselves (``--unattended-s``), or with the same command's next start.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from actors.environment.app import create_app
from actors.environment.episode import EpisodeInputs, run_hosted_episode
from actors.environment.messages import EpisodeOutcome
from actors.environment.service import EnvironmentService, EnvironmentServiceSettings
from protocol.cli.exit_codes import main_guard
from protocol.cli.numbers import integer_between, number_at_least
from protocol.cli.parser import CommandLineParser
from sandbox.egress_proxy.options import add_egress_proxy_options, settings_from_options
from sandbox.host_record import HostSettings, current_host, require_answering_engine
from sandbox.http.auth import check_access, read_token
from sandbox.http.serving import bind_listener, run_server
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.server.journal import StateDirectory


def make_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.environment", description=(__doc__ or "").split("``: ")[1].split("\n\n")[0]
    )
    add = made.add_argument
    add("--host", default="127.0.0.1", help="beyond loopback: with a token, or --no-auth")
    add("--port", type=integer_between(0, 65535), default=18082, help="0: a free one")
    add("--token-file", type=Path, help="bearer token; or LONGSHORE_SANDBOX_TOKEN")
    add("--no-auth", action="store_true", help="let everyone who reaches the port run programs here")
    add("--slots", type=integer_between(1), default=16, help="episodes at once (default: %(default)s)")
    add("--ttl-s", type=number_at_least(1), default=60.0, help="an episode's life while no run asks for it")
    add("--warm", type=integer_between(0), default=0, help="sandboxes kept ready of each kind")
    add("--image", default="", help="image of tasks that name none")
    add("--session-max-s", type=number_at_least(1), default=7200.0, help="a sandbox's longest life")
    add("--unattended-s", type=number_at_least(1), default=60.0, help="a sandbox's life without this service")
    add("--disk-loop", action="store_true", help="a file system of its own for each sandbox, where there is no quota")
    add("--state", type=Path, help="folder that says whose sandboxes are its own (default: in LONGSHORE_HOME, by port)")
    add_egress_proxy_options(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    return main_guard(lambda: _main(words, os.environ))


def _main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    chosen = make_parser().parse_args(words)
    token = read_token(chosen.token_file, environment)
    allowed = check_access(chosen.host, token, no_auth=chosen.no_auth, name="launch.environment")
    settings = HostSettings.from_environment()
    host = require_answering_engine(current_host(settings))
    opened: list[EnvironmentService] = []

    @asynccontextmanager
    async def open_service() -> AsyncGenerator[EnvironmentService]:
        async with SandboxPool(_pool_settings(chosen, held.id), host) as pool:
            await pool.remove_strays()

            async def played(part: EpisodeInputs) -> EpisodeOutcome:
                return await run_hosted_episode(part, pool)

            async with EnvironmentService(EnvironmentServiceSettings(chosen.slots, chosen.ttl_s), played) as service:
                opened.append(service)
                yield service

    async def drain(within_s: float) -> None:
        for service in opened:
            await service.drain(within_s)

    state = chosen.state or settings.home / "environment" / str(chosen.port)
    with StateDirectory(state) as held, bind_listener(chosen.host, chosen.port) as listener:
        return run_server(create_app(open_service, allowed), listener, drain)


def _pool_settings(chosen: argparse.Namespace, service: str) -> PoolSettings:
    """``service``: which one it is, also after its restart."""
    name = f"environment-{service}"
    return PoolSettings(
        pool=name,
        run_id=name,
        capacity=chosen.slots + chosen.warm,
        start_concurrency=os.cpu_count() or 2,
        containers=settings_from_options(
            ContainerSettings,
            chosen,
            image=chosen.image,
            deadline_s=chosen.unattended_s,
            max_s=chosen.session_max_s,
        ),
        warm=chosen.warm,
        disk_loop=chosen.disk_loop,
        owner=f"server:{name}",
    )


if __name__ == "__main__":
    sys.exit(main())
