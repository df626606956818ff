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
from sandbox.stress.faults.arena import UNDER_WAY, Arena
from sandbox.stress.faults.fault import Fault, witness
from sandbox.stress.own_engine import OwnEngine
from sandbox.stress.places import STRUCK_TASK
from sandbox.stress.report import Tally
from sandbox.stress.talk import Talker

_UNDER_WAY_S = 120.0


class Struck(NamedTuple):
    engine: OwnEngine
    containers: list[str]


class EngineFault(Fault):
    """Strikes every session of an engine of our own at once, each with a command under way."""

    async def inject(self, arena: Arena, tally: Tally) -> None:
        engine = await arena.engine()
        if engine is None:
            tally.skipped += arena.struck
            return
        async with arena.on(engine) as place:
            talkers = [await arena.prepared(await place.open(STRUCK_TASK)) for _ in range(arena.struck)]
            ready = asyncio.Barrier(len(talkers) + 1)

            async def under_way(talker: Talker) -> None:
                await ready.wait()
                await talker.endure(UNDER_WAY, _UNDER_WAY_S)

            async with asyncio.TaskGroup() as group:
                for talker in talkers:
                    group.create_task(witness(arena, tally, talker, under_way, self.within_s))
                await ready.wait()
                await self.strike(Struck(engine, [talker.seat.container for talker in talkers]))

    @abstractmethod
    async def strike(self, struck: Struck) -> None: ...


class ShimKilled(EngineFault):
    """kill -9 of each container's containerd-shim."""

    name = "shim-kill"

    async def strike(self, struck: Struck) -> None:
        shims = await asyncio.to_thread(_shims)
        for container in struck.containers:
            if container not in shims:
                raise InfraError(f"container {container[:12]} has no containerd-shim")
            with contextlib.suppress(ProcessLookupError):
                os.kill(shims[container], signal.SIGKILL)


class DaemonKilled(EngineFault):
    """kill -9 of dockerd, and its restart."""

    name = "dockerd-kill"

    async def strike(self, struck: Struck) -> None:
        await struck.engine.kill()
        await struck.engine.start()


class DaemonStopped(EngineFault):
    """SIGSTOP of dockerd for 20 s."""

    name = "dockerd-stop"
    _STOPPED_S = 20.0

    async def strike(self, struck: Struck) -> None:
        struck.engine.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._STOPPED_S)
        finally:
            struck.engine.send(signal.SIGCONT)


def _shims() -> dict[str, int]:
    """Container → the pid of its shim, of all on this machine."""
    found: dict[str, int] = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = each.read_bytes().decode(errors="replace").split("\0")
            if "containerd-shim" in words[0] and "-id" in words:
                found[words[words.index("-id") + 1]] = int(each.parent.name)
    return found
