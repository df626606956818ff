"""Faults that commands cause in their own sandbox."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import ClassVar

from protocol.errors import InfraError
from sandbox.stress import floor
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.faults.fault import StressFault, observe_fault
from sandbox.stress.faults.fault_context import FaultContext
from sandbox.stress.report import FaultTally

_HARM_S = 60.0


class SandboxFault(StressFault):
    """Breaks some sessions of the source that the run measures, all at once."""

    storage_mb: ClassVar[int | None] = None
    """Disk limit of the target sandbox, if it differs from the others'."""

    async def inject(self, context: FaultContext, tally: FaultTally) -> None:
        async def one() -> None:
            checked = await context.open_session(self.storage_mb)
            await observe_fault(context, tally, checked, self.break_sandbox, self.deadline_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(context.targets):
                group.create_task(one())

    @abstractmethod
    async def break_sandbox(self, checked: CheckedSession) -> None:
        """Cause the fault. Raises the session's errors."""


class OutOfMemoryFault(SandboxFault):
    """A shell that uses more memory than the container has."""

    name = "oom"

    async def break_sandbox(self, checked: CheckedSession) -> None:
        await checked.run_unchecked("x=$(head -c 2000000000 /dev/zero | tr '\\0' x); echo ${#x}", _HARM_S)


class ForkBombFault(SandboxFault):
    """A fork bomb up to the container's process limit."""

    name = "fork-bomb"

    async def break_sandbox(self, checked: CheckedSession) -> None:
        await checked.run_unchecked("b() { b | b & }; b; b; wait", 3.0)


class FullDiskFault(SandboxFault):
    """A full file system (/dev/shm), then more on the container's own disk than its limit.

    If the engine's storage has a quota, the write fails; if the pool watches the disk, it ends the session; otherwise
    the write succeeds, and the session is unaffected.
    """

    name = "disk-full"
    storage_mb = 64

    async def break_sandbox(self, checked: CheckedSession) -> None:
        done = await checked.run_unchecked("head -c 1G /dev/zero >/dev/shm/full; rm /dev/shm/full", _HARM_S)
        if "No space left" not in done.output:
            raise InfraError(f"the shared memory did not fill up: {done.output[-200:]!r}")
        await checked.run_unchecked("head -c 192M /dev/zero >/var/tmp/full; sync; sleep 5; rm /var/tmp/full", _HARM_S)


class OutputBombFault(SandboxFault):
    """A quarter of a gigabyte of output; head and tail are kept."""

    name = "output-bomb"
    _BYTES = 256 << 20

    async def break_sandbox(self, checked: CheckedSession) -> None:
        done = await checked.run_unchecked(f"yes bomb | head -c {self._BYTES}", _HARM_S)
        kept = len(done.output.encode())
        if not done.timed_out and not 0 < self._BYTES - done.truncated_bytes < 2 * kept:
            raise InfraError(f"of {self._BYTES} bytes {kept} were kept and {done.truncated_bytes} counted as dropped")


class LogBombFault(SandboxFault):
    """Much output, in very short lines, to everything that could be the container's log; the engine keeps no log of
    it."""

    name = "log-bomb"

    async def break_sandbox(self, checked: CheckedSession) -> None:
        await checked.run_unchecked(
            "for log in /proc/1/fd/1 /proc/1/fd/2 /dev/console /dev/kmsg; do yes | head -c 64M >$log; done 2>/dev/null;"
            " yes | head -n 2000000 >&2",
            _HARM_S,
        )
        if checked.sandbox.container:
            log = await floor.run_docker(
                checked.sandbox.engine_url, "inspect", "--format", "{{.LogPath}}", checked.sandbox.container
            )
            if log.strip():
                raise InfraError(f"the engine keeps a log of the sandbox in {log.strip()}")


class HungExecFault(SandboxFault):
    """A command that ignores every signal and never ends, together with a `docker exec` that never ends."""

    name = "hung-exec"

    async def break_sandbox(self, checked: CheckedSession) -> None:
        if checked.sandbox.container:
            await floor.run_docker(
                checked.sandbox.engine_url, "exec", "--detach", checked.sandbox.container, "sleep", "100000"
            )
        done = await checked.run_unchecked("trap '' TERM INT HUP QUIT; while :; do sleep 100000; done", 2.0)
        if not done.timed_out:
            raise InfraError(f"a command that never ends has ended: {done.output[-200:]!r}")
