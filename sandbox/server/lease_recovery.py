"""Takes over the sandboxes of a dead server's leases, which its state directory records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from protocol.errors import InfraError, UserError
from sandbox.errors import SandboxLost
from sandbox.server.journal import RememberedLease, StateDirectory
from sandbox.server.lease_state import HostProvider, LeaseState
from sandbox.server.task_source import TaskSource

_log = logging.getLogger(__name__)


async def adopt_remembered_leases(
    provider: HostProvider,
    tasks: TaskSource,
    directory: StateDirectory,
    restore: Callable[[RememberedLease], LeaseState],
    *,
    at_once: int,
) -> int:
    """Restore every lease of an earlier server, and take over its sandbox, ``at_once`` at a time.

    Returns the number of sandboxes taken over; the sandboxes of the other leases are lost. Raises DockerEngineError if
    the daemon does not answer.
    """
    containers = await provider.containers()
    slots, adopted = asyncio.Semaphore(at_once), 0

    async def take_over(state: LeaseState, remembered: RememberedLease) -> None:
        nonlocal adopted
        async with slots:
            if remembered.container in containers and await _adopt(provider, tasks, state, remembered):
                adopted += 1
            else:
                state.lost = SandboxLost("the server was restarted, and the lease's container no longer runs")

    async with asyncio.TaskGroup() as group:
        for remembered in directory.remembered_leases():
            state = restore(remembered)
            if remembered.container:
                group.create_task(take_over(state, remembered))
    return adopted


async def _adopt(provider: HostProvider, tasks: TaskSource, state: LeaseState, remembered: RememberedLease) -> bool:
    try:
        task = await asyncio.to_thread(tasks.resolve, remembered.reset["task_meta"])
        state.sandbox = await provider.adopt(remembered.container, task, remembered.step or 0)
    except (InfraError, UserError) as error:
        _log.warning("lease %s: %s", state.lease.id, error)
        return False
    state.task, state.evaluate_s, state.step = task, remembered.reset.get("evaluate_s"), remembered.step
    return True
