"""``python -m sandbox.server [--port 18081] [--dataset DIR] …``: serve this machine's sandboxes over HTTP.

On SIGTERM or Ctrl-C the server starts nothing more, waits a little for running requests, and ends its sandboxes. If it
is killed, its sandboxes keep running: the same command with the same ``--state`` takes them over before their own
deadline (``--unattended-s``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protocol.cli.arguments import AtLeastOne, Count, Flag, Port, environment_default, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.host_record import HostSettings, current_host, require_answering_engine
from sandbox.http.auth import check_access, read_token
from sandbox.http.serving import bind_listener, run_server
from sandbox.pool.leases import LeaseLimits
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.providers.interface import LocalProvider
from sandbox.server.app import create_app
from sandbox.server.journal import StateDirectory
from sandbox.server.service import PoolService, PoolServiceSettings
from sandbox.server.task_source import TaskSource


class ServerArguments(EgressProxyOptions):
    """Serve this machine's sandboxes over HTTP. Environment variables are named as in OpenClaw's server.

    Example: longshore server --port 18081 --dataset ./tasks
    """

    host: Annotated[str, option("HOST")] = "127.0.0.1"
    """Address to listen on; beyond loopback a token or --no-auth is required."""
    port: Port = environment_default("ENV_SERVER_PORT", 18081)
    """Port to listen on; 0 for a free one."""
    token_file: Annotated[Path | None, option("FILE")] = None
    """File with the bearer token; default: the variable LONGSHORE_SANDBOX_TOKEN."""
    no_auth: Flag = False
    """No authentication: everyone who reaches the port can run programs on this machine."""
    dataset: Annotated[Path | None, option("FOLDER")] = environment_default("DATASET_DIR", None)
    """Base folder of task_path in requests."""
    max_tasks: AtLeastOne = environment_default("WORKER_MAX_TASKS", 16)
    """Maximum number of different tasks at a time."""
    max_runs_per_task: AtLeastOne = environment_default("WORKER_MAX_RUNS_PER_TASK", 8)
    """Maximum number of sandboxes per task at a time."""
    lease_ttl_s: Annotated[float, option("S"), Field(ge=1)] = environment_default("WORKER_RUN_IDLE_TTL", 600.0)
    """Seconds after which a lease that is not renewed expires."""
    warm: Count = 0
    """Size of the warm pool, per image and limits."""
    image: Annotated[str, option("IMAGE")] = ""
    """Default image of tasks."""
    session_max_s: Annotated[float, option("S"), Field(ge=1)] = 7200.0
    """Maximum lifetime of a sandbox, in seconds."""
    unattended_s: Annotated[float, option("S"), Field(ge=1)] = 60.0
    """Seconds that a sandbox survives this server."""
    disk_loop: Flag = False
    """Give each sandbox its own loop-mounted file system if the engine has no disk quota."""
    state: Annotated[Path | None, option("FOLDER")] = None
    """Folder for state that survives a crash; default: in LONGSHORE_HOME, by port."""


def run(chosen: ServerArguments, out: JsonOutput) -> int:
    """Serve until SIGINT or SIGTERM."""
    del out
    token = read_token(chosen.token_file, os.environ)
    allowed = check_access(chosen.host, token, no_auth=chosen.no_auth, name="sandbox.server")
    settings = HostSettings.from_environment()
    host = require_answering_engine(current_host(settings))
    state = chosen.state or settings.home / "pool-server" / str(chosen.port)
    limits = LeaseLimits(chosen.max_tasks, chosen.max_runs_per_task, chosen.lease_ttl_s)
    tasks = TaskSource(chosen.dataset)
    opened: list[PoolService] = []

    @asynccontextmanager
    async def open_service() -> AsyncGenerator[PoolService]:
        async with (
            SandboxPool(_pool_settings(chosen, held.id), host) as pool,
            PoolService(PoolServiceSettings(limits), LocalProvider(pool), tasks, held) as service,
        ):
            opened.append(service)
            yield service

    async def drain(within_s: float) -> None:
        for service in opened:
            await service.drain(within_s)

    with StateDirectory(state) as held, bind_listener(chosen.host, chosen.port) as listener:
        return run_server(create_app(open_service, allowed), listener, drain)


def _pool_settings(chosen: ServerArguments, server: str) -> PoolSettings:
    """Return the pool's settings; ``server`` identifies the server, even after a restart: an engine may have
    several."""
    name = f"server-{server}"
    return PoolSettings(
        pool=name,
        run_id=name,
        capacity=chosen.max_tasks * chosen.max_runs_per_task + chosen.warm,
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


COMMAND = Command("sandbox.server", ServerArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
