"""Faults that commands do to their own sandbox."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import ClassVar

from protocol.errors import InfraError
from sandbox.stress import floor
from sandbox.stress.faults.arena import Arena
from sandbox.stress.faults.fault import Fault, witness
from sandbox.stress.report import Tally
from sandbox.stress.talk import Talker

_HARM_S = 60.0


class InsideFault(Fault):
    """Strikes some sessions of the place that the run measures, all at once."""

    storage_mb: ClassVar[int | None] = None
    """Disk limit of the struck sandbox, where it differs from the others'."""

    async def inject(self, arena: Arena, tally: Tally) -> None:
        async def one() -> None:
            talker = await arena.open(self.storage_mb)
            await witness(arena, tally, talker, self.strike, self.within_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(arena.struck):
                group.create_task(one())

    @abstractmethod
    async def strike(self, talker: Talker) -> None:
        """Do the harm.  Raises what the session raises."""


class OutOfMemory(InsideFault):
    """A shell that takes more memory than the container has."""

    name = "oom"

    async def strike(self, talker: Talker) -> None:
        await talker.endure("x=$(head -c 2000000000 /dev/zero | tr '\\0' x); echo ${#x}", _HARM_S)


class ForkBomb(InsideFault):
    """Every process that the container may have, again and again."""

    name = "fork-bomb"

    async def strike(self, talker: Talker) -> None:
        await talker.endure("b() { b | b & }; b; b; wait", 3.0)


class FullDisk(InsideFault):
    """A file system that is full (/dev/shm), then more on the container's own disk than its limit.

    Where the engine's storage has a quota the write fails; where the pool watches, it ends the session; elsewhere the
    write goes through, and the session is none the worse.
    """

    name = "disk-full"
    storage_mb = 64

    async def strike(self, talker: Talker) -> None:
        done = await talker.endure("head -c 1G /dev/zero >/dev/shm/full; rm /dev/shm/full", _HARM_S)
        if "No space left" not in done.output:
            raise InfraError(f"the shared memory did not fill up: {done.output[-200:]!r}")
        await talker.endure("head -c 192M /dev/zero >/var/tmp/full; sync; sleep 5; rm /var/tmp/full", _HARM_S)


class OutputBomb(InsideFault):
    """A quarter of a gigabyte of output; head and tail are kept."""

    name = "output-bomb"
    _BYTES = 256 << 20

    async def strike(self, talker: Talker) -> None:
        done = await talker.endure(f"yes bomb | head -c {self._BYTES}", _HARM_S)
        kept = len(done.output.encode())
        if not done.timed_out and not 0 < self._BYTES - done.truncated_bytes < 2 * kept:
            raise InfraError(f"of {self._BYTES} bytes {kept} were kept and {done.truncated_bytes} counted as dropped")


class LogBomb(InsideFault):
    """Much, in very short lines, to whatever could be the container's log; the engine keeps no log of it."""

    name = "log-bomb"

    async def strike(self, talker: Talker) -> None:
        await talker.endure(
            "for log in /proc/1/fd/1 /proc/1/fd/2 /dev/console /dev/kmsg; do yes | head -c 64M >$log; done 2>/dev/null;"
            " yes | head -n 2000000 >&2",
            _HARM_S,
        )
        if talker.seat.container:
            log = await floor.docker(
                talker.seat.engine_url, "inspect", "--format", "{{.LogPath}}", talker.seat.container
            )
            if log.strip():
                raise InfraError(f"the engine keeps a log of the sandbox in {log.strip()}")


class HungExec(InsideFault):
    """A command that ignores every signal it can and never ends, beside an exec of the engine's that never ends."""

    name = "hung-exec"

    async def strike(self, talker: Talker) -> None:
        if talker.seat.container:
            await floor.docker(talker.seat.engine_url, "exec", "--detach", talker.seat.container, "sleep", "100000")
        done = await talker.endure("trap '' TERM INT HUP QUIT; while :; do sleep 100000; done", 2.0)
        if not done.timed_out:
            raise InfraError(f"a command that never ends has ended: {done.output[-200:]!r}")
