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
    """kill -9 of a pool server that this run started, with a command under way in each lease, and its restart."""

    name = "server-kill"

    async def inject(self, arena: FaultContext, tally: FaultTally) -> None:
        with tempfile.TemporaryDirectory(prefix="ls-server-") as state:
            server = _Server(Path(state))
            try:
                await server.start()
                async with RemotePool(server.url, unreachable_s=self.deadline_s) as pool:
                    talkers = [
                        await arena.prepare_session(RemoteHeldSandbox(await pool.open(FAULT_TASK)))
                        for _ in range(arena.struck)
                    ]
                    async with asyncio.TaskGroup() as group:
                        for talker in talkers:
                            group.create_task(observe_fault(arena, tally, talker, _under_way, self.deadline_s))
                        await asyncio.sleep(0)  # each has sent its command
                        await server.kill()
                        await server.start()
            finally:
                await asyncio.shield(server.stop())


class _Server:
    """``python -m sandbox.server``, as often as it is started."""

    def __init__(self, state: Path) -> None:
        self._port = find_free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._state = state
        self._process: Process | None = None

    async def start(self) -> None:
        """Returns when it answers.  Raises InfraError."""
        self._process = await _python("", "sandbox.server", "--port", str(self._port), "--state", str(self._state))
        if (said := await _line(self._process)) != f"{self.url}/":
            raise InfraError(f"the pool server did not start: it said {said!r}")

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """It ends its sandboxes first."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


class ClientKilledFault(StressFault):
    """kill -9 of a process that holds sessions, each with a command under way; another takes them over.

    With the library that is a pool of the same name, which adopts the containers before their own deadline; with a
    server it is a client that knows the leases.
    """

    name = "client-kill"

    async def inject(self, arena: FaultContext, tally: FaultTally) -> None:
        place = arena.bench.source
        if isinstance(place, PoolServerSource) and arena.server is not None:
            await self._strike(arena, tally, place.take_over_lease, ("--server", arena.server.url), arena.server.token)
            return
        name = arena.pool_name("client")
        async with open_pool_source(arena.host, name, arena.struck, 1) as other:
            await self._strike(arena, tally, other.adopt, ("--pool", name))

    async def _strike(
        self,
        arena: FaultContext,
        tally: FaultTally,
        take_over: Callable[[str], Awaitable[HeldSandbox]],
        where: tuple[str, str],
        token: str = "",
    ) -> None:
        sessions = [arena.session_number() for _ in range(arena.struck)]
        process = await _python(
            token, "sandbox.stress.faults.victim_client", *where, arena.bench.run, *map(str, sessions)
        )
        try:
            held = cast("list[str]", orjson.loads(await _line(process) or "[]"))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
        if len(held) != len(sessions):
            raise InfraError("the client that was to be killed held no sessions")

        async def one(session: int, what: str) -> None:
            try:
                seat = await take_over(what)
            except SandboxLost:
                tally.injected += 1
                tally.lost_typed += 1
                return
            talker = CheckedSession(seat, arena.bench.report, arena.bench.run, session)
            talker.resume_counts(asked=2, answered=1)  # prepared, and what was under way
            await observe_fault(arena, tally, talker, _nothing, self.deadline_s)

        async with asyncio.TaskGroup() as group:
            for session, what in zip(sessions, held, strict=True):
                group.create_task(one(session, what))


async def _under_way(talker: CheckedSession) -> None:
    await talker.run_unchecked(RUNNING_COMMAND, _UNDER_WAY_S)


async def _nothing(talker: CheckedSession) -> None:
    """It has been struck."""
    del talker


async def _python(token: str, module: str, *arguments: str) -> Process:
    """A module of ours in a process of its own, which sees the end of its input when this one dies.

    ``token`` is of the server that it asks; a server of ours asks for none, whatever this process was given.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: token}
    return await asyncio.create_subprocess_exec(  # noqa: TID251  stress runs asyncio's own loop
        sys.executable, "-m", module, *arguments, env=env, stdin=PIPE, stdout=PIPE
    )


async def _line(process: Process) -> str:
    """The next line that it prints; empty when it has ended.  Raises InfraError when none comes."""
    if process.stdout is None:
        raise ValueError("the process has no pipe")
    try:
        async with asyncio.timeout(_UP_S):
            return (await process.stdout.readline()).decode().strip()
    except TimeoutError as error:
        raise InfraError(f"a process of ours said nothing within {_UP_S:g} s") from error
