"""Faults of processes: the pool server, and a client that holds sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import orjson

from protocol.errors import InfraError
from protocol.processes.loopback import find_free_port
from sandbox.errors import SandboxLost
from sandbox.http.auth import TOKEN_VARIABLE
from sandbox.providers.remote import RemotePool
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.faults.fault import StressFault, observe_fault
from sandbox.stress.faults.fault_context import RUNNING_COMMAND, FaultContext
from sandbox.stress.report import FaultTally
from sandbox.stress.sandbox_sources import (
    FAULT_TASK,
    HeldSandbox,
    PoolServerSource,
    RemoteHeldSandbox,
    open_pool_source,
)

_UP_S = 120.0
_STOP_S = 120.0
_UNDER_WAY_S = 60.0
_ROOT = Path(__file__).parents[3]


class ServerKilledFault(StressFault):
    """Kills a pool server that this run started with SIGKILL, with a running command in each lease, and restarts it."""

    name = "server-kill"

    async def inject(self, context: FaultContext, tally: FaultTally) -> None:
        with tempfile.TemporaryDirectory(prefix="ls-server-") as state:
            server = _Server(Path(state))
            try:
                await server.start()
                async with RemotePool(server.url, acquire_s=self.deadline_s, unreachable_s=self.deadline_s) as pool:
                    checked_sessions = [
                        await context.prepare_session(RemoteHeldSandbox(await pool.open(FAULT_TASK)))
                        for _ in range(context.targets)
                    ]
                    async with asyncio.TaskGroup() as group:
                        for checked in checked_sessions:
                            group.create_task(observe_fault(context, tally, checked, _under_way, self.deadline_s))
                        await asyncio.sleep(0)  # each has sent its command
                        await server.kill()
                        await server.start()
            finally:
                await asyncio.shield(server.stop())


class _Server:
    """``longshore server``, which can be started several times."""

    def __init__(self, state: Path) -> None:
        self._port = find_free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._state = state
        self._process: Process | None = None

    async def start(self) -> None:
        """Start it and wait until it answers. Raises InfraError."""
        self._process = await _python("", "sandbox.server", "--port", str(self._port), "--state", str(self._state))
        if (line := await _line(self._process)) != f"{self.url}/":
            raise InfraError(f"the pool server did not start: it printed {line!r}")

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Stop it; it ends its sandboxes first."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


class ClientKilledFault(StressFault):
    """Kills a process that holds sessions with SIGKILL, each with a running command; another process takes them over.

    With the library, a pool of the same name adopts the containers before their own deadline; with a server, a client
    that knows the leases takes them over.
    """

    name = "client-kill"

    async def inject(self, context: FaultContext, tally: FaultTally) -> None:
        source = context.stress.source
        if isinstance(source, PoolServerSource) and context.server is not None:
            await self._take_over_after_kill(
                context, tally, source.take_over_lease, ("--server", context.server.url), context.server.token
            )
            return
        name = context.pool_name("client")
        async with open_pool_source(context.host, name, context.targets, 1) as other:
            await self._take_over_after_kill(context, tally, other.adopt, ("--pool", name))

    async def _take_over_after_kill(
        self,
        context: FaultContext,
        tally: FaultTally,
        take_over: Callable[[str], Awaitable[HeldSandbox]],
        where: tuple[str, str],
        token: str = "",
    ) -> None:
        sessions = [context.session_number() for _ in range(context.targets)]
        process = await _python(
            token, "sandbox.stress.faults.killed_client", *where, context.stress.run, *map(str, sessions)
        )
        try:
            held = cast("list[str]", orjson.loads(await _line(process) or "[]"))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
        if len(held) != len(sessions):
            raise InfraError("the client that should have been killed held no sessions")

        async def one(session: int, what: str) -> None:
            try:
                sandbox = await take_over(what)
            except SandboxLost:
                tally.injected += 1
                tally.lost_typed += 1
                return
            checked = CheckedSession(sandbox, context.stress.report, context.stress.run, session)
            checked.resume_counts(sent=2, answered=1)  # the preparation and the running command
            await observe_fault(context, tally, checked, _nothing, self.deadline_s)

        async with asyncio.TaskGroup() as group:
            for session, what in zip(sessions, held, strict=True):
                group.create_task(one(session, what))


async def _under_way(checked: CheckedSession) -> None:
    await checked.run_unchecked(RUNNING_COMMAND, _UNDER_WAY_S)


async def _nothing(checked: CheckedSession) -> None:
    """Do nothing: the fault is already injected."""
    del checked


async def _python(token: str, module: str, *arguments: str) -> Process:
    """Start a longshore module in its own process, which sees the end of its input when this one dies.

    ``token`` is for the server that it uses; a server of this run needs none, whatever this process was given.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: token}
    return await asyncio.create_subprocess_exec(  # noqa: TID251  stress runs asyncio's own loop
        sys.executable, "-m", module, *arguments, env=env, stdin=PIPE, stdout=PIPE
    )


async def _line(process: Process) -> str:
    """Return the next line that it prints; empty if it has ended. Raises InfraError if none comes."""
    if process.stdout is None:
        raise ValueError("the process has no pipe")
    try:
        async with asyncio.timeout(_UP_S):
            return (await process.stdout.readline()).decode().strip()
    except TimeoutError as error:
        raise InfraError(f"the process printed nothing within {_UP_S:g} s") from error
