"""``python -m launch.environment …``: serve whole episodes to runs on other machines.

Stopped by SIGTERM or Ctrl-C, it begins nothing more, and ends its episodes and their sandboxes.  Killed, it leaves
sandboxes that end by themselves (``--unattended-s``), or with the same command's next start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from pydantic import Field

from actors.environment.app import create_app
from actors.environment.episode import EpisodeInputs, run_hosted_episode
from actors.environment.messages import EpisodeOutcome
from actors.environment.service import EnvironmentService, EnvironmentServiceSettings
from protocol.cli.arguments import AtLeastOne, Count, Flag, Port, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.host_record import HostSettings, current_host, require_answering_engine
from sandbox.http.auth import check_access, read_token
from sandbox.http.serving import bind_listener, run_server
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.server.journal import StateDirectory


class EnvironmentArguments(EgressProxyOptions):
    """Serve whole episodes, each with its sandbox on this machine, to runs on other machines.

    Example: longshore environment --port 18082 --slots 32
    """

    host: Annotated[str, option("HOST")] = "127.0.0.1"
    """Address to listen on; beyond loopback a token or --no-auth is required."""
    port: Port = 18082
    """Port to listen on; 0 for a free one."""
    token_file: Annotated[Path | None, option("FILE")] = None
    """File with the bearer token; or LONGSHORE_SANDBOX_TOKEN."""
    no_auth: Flag = False
    """No authentication: everyone who reaches the port can run programs on this machine."""
    slots: AtLeastOne = 16
    """Concurrent episodes."""
    ttl_s: Annotated[float, option("S"), Field(ge=1)] = 60.0
    """Seconds after which an episode that no run polls is ended."""
    warm: Count = 0
    """Size of the warm pool, per image and limits."""
    image: Annotated[str, option("IMAGE")] = ""
    """Default image of tasks."""
    session_max_s: Annotated[float, option("S"), Field(ge=1)] = 7200.0
    """Maximum lifetime of a sandbox, in seconds."""
    unattended_s: Annotated[float, option("S"), Field(ge=1)] = 60.0
    """Seconds that a sandbox survives this service."""
    disk_loop: Flag = False
    """Give each sandbox its own loop-mounted file system if the engine has no disk quota."""
    state: Annotated[Path | None, option("FOLDER")] = None
    """Folder that records this service's sandboxes; default: in LONGSHORE_HOME, by port."""


def run(chosen: EnvironmentArguments, out: JsonOutput) -> int:
    """Serve until SIGINT or SIGTERM."""
    del out
    token = read_token(chosen.token_file, os.environ)
    allowed = check_access(chosen.host, token, no_auth=chosen.no_auth, name="launch.environment")
    settings = HostSettings.from_environment()
    host = require_answering_engine(current_host(settings))
    opened: list[EnvironmentService] = []

    @asynccontextmanager
    async def open_service() -> AsyncGenerator[EnvironmentService]:
        async with SandboxPool(_pool_settings(chosen, held.id), host) as pool:
            await pool.remove_strays()

            async def run_episode(inputs: EpisodeInputs) -> EpisodeOutcome:
                return await run_hosted_episode(inputs, pool)

            service_settings = EnvironmentServiceSettings(chosen.slots, chosen.ttl_s)
            async with EnvironmentService(service_settings, run_episode) as service:
                opened.append(service)
                yield service

    async def drain(within_s: float) -> None:
        for service in opened:
            await service.drain(within_s)

    state = chosen.state or settings.home / "environment" / str(chosen.port)
    with StateDirectory(state) as held, bind_listener(chosen.host, chosen.port) as listener:
        return run_server(create_app(open_service, allowed), listener, drain)


def _pool_settings(chosen: EnvironmentArguments, service: str) -> PoolSettings:
    """Return the settings of the pool; ``service`` is the service's id, which survives restarts."""
    name = f"environment-{service}"
    return PoolSettings(
        pool=name,
        run_id=name,
        capacity=chosen.slots + chosen.warm,
        start_concurrency=os.cpu_count() or 2,
        containers=chosen.proxy_settings(
            ContainerSettings,
            image=chosen.image,
            deadline_s=chosen.unattended_s,
            max_s=chosen.session_max_s,
        ),
        warm=chosen.warm,
        disk_loop=chosen.disk_loop,
        owner=f"server:{name}",
    )


COMMAND = Command("launch.environment", EnvironmentArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
