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


class StruckEngine(NamedTuple):
    engine: PrivateEngine
    containers: list[str]


class EngineFault(StressFault):
    """Strikes every session of an engine of our own at once, each with a command under way."""

    async def inject(self, arena: FaultContext, tally: FaultTally) -> None:
        engine = await arena.private_engine()
        if engine is None:
            tally.skipped += arena.struck
            return
        async with arena.open_private_pool(engine) as place:
            talkers = [await arena.prepare_session(await place.open(FAULT_TASK)) for _ in range(arena.struck)]
            ready = asyncio.Barrier(len(talkers) + 1)

            async def under_way(talker: CheckedSession) -> None:
                await ready.wait()
                await talker.run_unchecked(RUNNING_COMMAND, _UNDER_WAY_S)

            async with asyncio.TaskGroup() as group:
                for talker in talkers:
                    group.create_task(observe_fault(arena, tally, talker, under_way, self.deadline_s))
                await ready.wait()
                await self.strike(StruckEngine(engine, [talker.sandbox.container for talker in talkers]))

    @abstractmethod
    async def strike(self, struck: StruckEngine) -> None: ...


class ShimKilledFault(EngineFault):
    """kill -9 of each container's containerd-shim."""

    name = "shim-kill"

    async def strike(self, struck: StruckEngine) -> None:
        shims = await asyncio.to_thread(_shims)
        for container in struck.containers:
            if container not in shims:
                raise InfraError(f"container {container[:12]} has no containerd-shim")
            with contextlib.suppress(ProcessLookupError):
                os.kill(shims[container], signal.SIGKILL)


class DaemonKilledFault(EngineFault):
    """kill -9 of dockerd, and its restart."""

    name = "dockerd-kill"

    async def strike(self, struck: StruckEngine) -> None:
        await struck.engine.kill()
        await struck.engine.start()


class DaemonStoppedFault(EngineFault):
    """SIGSTOP of dockerd for 20 s."""

    name = "dockerd-stop"
    _STOPPED_S = 20.0

    async def strike(self, struck: StruckEngine) -> None:
        struck.engine.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._STOPPED_S)
        finally:
            struck.engine.send_signal(signal.SIGCONT)


def _shims() -> dict[str, int]:
    """Container → the pid of its shim, of all on this machine."""
    found: dict[str, int] = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = each.read_bytes().decode(errors="replace").split("\0")
            if "containerd-shim" in words[0] and "-id" in words:
                found[words[words.index("-id") + 1]] = int(each.parent.name)
    return found
