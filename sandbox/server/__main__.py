"""``python -m sandbox.server [--port 18081] [--dataset DIR] …``: serve this machine's sandboxes over HTTP.

On SIGTERM or Ctrl-C the server starts nothing more, waits a little for what runs, and ends its sandboxes. If it is
killed, its sandboxes live on: the same command with the same ``--state`` takes them over before their own deadline
(``--unattended-s``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from protocol.cli.exit_codes import main_guard
from protocol.cli.numbers import integer_between, number_at_least
from protocol.cli.parser import CommandLineParser
from sandbox.egress_proxy.options import add_egress_proxy_options, settings_from_options
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


def build_parser(environment: Mapping[str, str]) -> CommandLineParser:
    """Build the parser; the variables for its defaults are named as those of OpenClaw's server."""
    made = CommandLineParser(prog="python -m sandbox.server", description=(__doc__ or "").split("\n\n")[0])
    add = made.add_argument

    def given(name: str, otherwise: str) -> str:
        return environment.get(name, otherwise)

    add("--host", default="127.0.0.1", help="beyond loopback: with a token, or --no-auth")
    add("--port", type=integer_between(0, 65535), default=given("ENV_SERVER_PORT", "18081"), help="0: a free one")
    add("--token-file", type=Path, help="bearer token; or LONGSHORE_SANDBOX_TOKEN")
    add("--no-auth", action="store_true", help="let everyone who reaches the port run programs here")
    add("--dataset", type=Path, default=environment.get("DATASET_DIR"), help="folder that task_path is relative to")
    add("--max-tasks", type=integer_between(1), default=given("WORKER_MAX_TASKS", "16"), help="different tasks at once")
    add(
        "--max-runs-per-task",
        type=integer_between(1),
        default=given("WORKER_MAX_RUNS_PER_TASK", "8"),
        help="sandboxes of each",
    )
    add(
        "--lease-ttl-s",
        type=number_at_least(1),
        default=given("WORKER_RUN_IDLE_TTL", "600"),
        help="a lease's life unrenewed",
    )
    add("--warm", type=integer_between(0), default=0, help="sandboxes kept ready of each kind")
    add("--image", default="", help="image of tasks that name none")
    add("--session-max-s", type=number_at_least(1), default=7200.0, help="a sandbox's longest life")
    add("--unattended-s", type=number_at_least(1), default=60.0, help="a sandbox's life without this server")
    add("--disk-loop", action="store_true", help="a file system of its own for each sandbox, where there is no quota")
    add("--state", type=Path, help="folder for what must outlive a kill (default: in LONGSHORE_HOME, by port)")
    add_egress_proxy_options(made)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    chosen = build_parser(os.environ).parse_args(arguments)
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


def _pool_settings(chosen: argparse.Namespace, server: str) -> PoolSettings:
    """``server`` identifies the server, also after its restart, since an engine may serve several."""
    name = f"server-{server}"
    return PoolSettings(
        pool=name,
        run_id=name,
        capacity=chosen.max_tasks * chosen.max_runs_per_task + chosen.warm,
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
    sys.exit(main_guard(main))
