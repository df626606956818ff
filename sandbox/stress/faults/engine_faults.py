"""Faults of the engine, on one that this run started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from abc import abstractmethod
from pathlib import Path
from typing import NamedTuple

from protocol.errors import InfraError
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.faults.fault import StressFault, observe_fault
from sandbox.stress.faults.fault_context import RUNNING_COMMAND, FaultContext
from sandbox.stress.private_engine import PrivateEngine
from sandbox.stress.report import FaultTally
from sandbox.stress.sandbox_sources import FAULT_TASK

_UNDER_WAY_S = 120.0


class TargetEngine(NamedTuple):
    engine: PrivateEngine
    containers: list[str]


class EngineFault(StressFault):
    """Breaks every session of a private engine at once, each with a running command."""

    async def inject(self, context: FaultContext, tally: FaultTally) -> None:
        engine = await context.private_engine()
        if engine is None:
            tally.skipped += context.targets
            return
        async with context.open_private_pool(engine) as source:
            checked_sessions = [
                await context.prepare_session(await source.open(FAULT_TASK)) for _ in range(context.targets)
            ]
            ready = asyncio.Barrier(len(checked_sessions) + 1)

            async def under_way(checked: CheckedSession) -> None:
                await ready.wait()
                await checked.run_unchecked(RUNNING_COMMAND, _UNDER_WAY_S)

            async with asyncio.TaskGroup() as group:
                for checked in checked_sessions:
                    group.create_task(observe_fault(context, tally, checked, under_way, self.deadline_s))
                await ready.wait()
                containers = [checked.sandbox.container for checked in checked_sessions]
                await self.break_engine(TargetEngine(engine, containers))

    @abstractmethod
    async def break_engine(self, target: TargetEngine) -> None: ...


class ShimKilledFault(EngineFault):
    """Kills each container's containerd-shim with SIGKILL."""

    name = "shim-kill"

    async def break_engine(self, target: TargetEngine) -> None:
        shims = await asyncio.to_thread(_shims)
        for container in target.containers:
            if container not in shims:
                raise InfraError(f"container {container[:12]} has no containerd-shim")
            with contextlib.suppress(ProcessLookupError):
                os.kill(shims[container], signal.SIGKILL)


class DaemonKilledFault(EngineFault):
    """Kills dockerd with SIGKILL and restarts it."""

    name = "dockerd-kill"

    async def break_engine(self, target: TargetEngine) -> None:
        await target.engine.kill()
        await target.engine.start()


class DaemonStoppedFault(EngineFault):
    """Stops dockerd by SIGSTOP for 20 s."""

    name = "dockerd-stop"
    _STOPPED_S = 20.0

    async def break_engine(self, target: TargetEngine) -> None:
        target.engine.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._STOPPED_S)
        finally:
            target.engine.send_signal(signal.SIGCONT)


def _shims() -> dict[str, int]:
    """Return the PID of the shim of each container on this machine."""
    found: dict[str, int] = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = each.read_bytes().decode(errors="replace").split("\0")
            if "containerd-shim" in words[0] and "-id" in words:
                found[words[words.index("-id") + 1]] = int(each.parent.name)
    return found
