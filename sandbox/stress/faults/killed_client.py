"""``python -m sandbox.stress.faults.killed_client (--pool NAME | --server URL) RUN SESSION…``: a client to be killed.

It opens a sandbox for each session, prepares it, starts a command in it, and prints on one line what another process
needs to take the sandboxes over: the pool's container ids, or the server's leases. It ends with its input.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import orjson
from tyro.conf import Positional

from protocol.cli.arguments import CommandArguments, parse_arguments
from protocol.cli.exit_codes import main_guard
from sandbox.host_record import current_host
from sandbox.http.auth import read_token
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.faults.fault_context import PREPARE_COMMAND, RUNNING_COMMAND
from sandbox.stress.report import StressReport
from sandbox.stress.sandbox_sources import (
    FAULT_TASK,
    PoolServerSource,
    PoolSource,
    RemoteHeldSandbox,
    open_pool_source,
    open_server_source,
)
from sandbox.stress.server_metrics import PoolServerMetrics

_UNDER_WAY_S = 60.0


async def hold_sessions(source: PoolSource | PoolServerSource, run: str, sessions: Sequence[int]) -> None:
    """Hold the sessions until the end of the input."""
    held: list[str] = []
    async with asyncio.TaskGroup() as group:
        for session in sessions:
            sandbox = await source.open(FAULT_TASK)
            held.append(sandbox.lease_id if isinstance(sandbox, RemoteHeldSandbox) else sandbox.container)
            checked = CheckedSession(sandbox, StressReport(len(sessions)), run, session)
            await checked.run_checked(PREPARE_COMMAND)
            group.create_task(checked.run_unchecked(RUNNING_COMMAND, _UNDER_WAY_S))
            await asyncio.sleep(0)  # the command is sent
        sys.stdout.write(orjson.dumps(held).decode() + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


class KilledClientArguments(CommandArguments):
    """Hold sandboxes until this process is killed."""

    run_id: Positional[str]
    """Stress run."""
    sessions: Positional[tuple[int, ...]]
    """Numbers of the sessions."""
    pool: str = ""
    """Name of the pool to open them in."""
    server: str = ""
    """URL of the pool server to lease them from, in place of a pool."""


async def _hold(chosen: KilledClientArguments, token: str) -> None:
    count = len(chosen.sessions)
    where = (
        open_server_source(PoolServerMetrics(chosen.server, token), count)
        if chosen.server
        else open_pool_source(current_host(), chosen.pool, count, 1)
    )
    async with where as source:
        await hold_sessions(source, chosen.run_id, chosen.sessions)


def main() -> None:
    """Hold the sessions."""
    chosen = parse_arguments(KilledClientArguments, sys.argv[1:], "killed_client")
    asyncio.run(_hold(chosen, read_token(None, os.environ)))


if __name__ == "__main__":
    sys.exit(main_guard(main))
