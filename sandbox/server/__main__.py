"""``longshore server [--port 18081] [--dataset DIR] …``: serve this machine's sandboxes over HTTP.

On SIGTERM or Ctrl-C the server starts nothing more, waits a little for running requests, and ends its sandboxes. If it
is killed, its sandboxes keep running: the same command with the same ``--state`` takes them over before their own
deadline (``--heartbeat-timeout-s``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protocol.cli.arguments import AtLeastOne, Port, environment_default, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput
from sandbox.pool.leases import LeaseLimits
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider
from sandbox.server.app import create_app
from sandbox.server.journal import StateDirectory
from sandbox.server.service import PoolService, PoolServiceSettings
from sandbox.server.service_options import ServiceOptions
from sandbox.server.task_source import TaskSource
from sandbox.tasks.network_policy import DEFAULT_NETWORK_POLICY, NetworkPolicy

_LIMITS = LeaseLimits()


class ServerArguments(ServiceOptions):
    """Serve this machine's sandboxes over HTTP. Environment variables are named as in OpenClaw's server.

    Example: longshore server --port 18081 --dataset ./tasks
    """

    port: Port = environment_default("ENV_SERVER_PORT", 18081)
    """Port to listen on; 0 for a free one."""
    dataset: Annotated[Path | None, option("FOLDER")] = environment_default("DATASET_DIR", None)
    """Base folder of task_path in requests."""
    network: NetworkPolicy = DEFAULT_NETWORK_POLICY
    """Network of the data set's tasks; `task`: what each one asks for."""
    max_tasks: AtLeastOne = environment_default("WORKER_MAX_TASKS", _LIMITS.tasks)
    """Maximum number of different tasks at a time."""
    max_runs_per_task: AtLeastOne = environment_default("WORKER_MAX_RUNS_PER_TASK", _LIMITS.runs_per_task)
    """Maximum number of sandboxes per task at a time."""
    ttl_s: Annotated[float, option("S"), Field(ge=1)] = environment_default("WORKER_RUN_IDLE_TTL", _LIMITS.ttl_s)
    """Seconds after which a lease that is not renewed expires."""


def run(chosen: ServerArguments, out: JsonOutput) -> int:
    """Serve until SIGINT or SIGTERM."""
    del out
    limits = LeaseLimits(chosen.max_tasks, chosen.max_runs_per_task, chosen.ttl_s)
    tasks = TaskSource(chosen.dataset, chosen.network)

    def open_service(pool: SandboxPool, state: StateDirectory) -> PoolService:
        return PoolService(PoolServiceSettings(limits), LocalProvider(pool), tasks, state)

    return chosen.serve("pool-server", limits.slots, create_app, open_service)


COMMAND = Command("server", ServerArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
