"""The targets of faults: sessions of the run's own source, and a private engine."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from sandbox.docker.engine import DockerEngine
from sandbox.docker.leaks import wait_for_leaks
from sandbox.host_record import SandboxHost
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.phases import StressContext
from sandbox.stress.private_engine import PrivateEngine, why_unavailable
from sandbox.stress.sandbox_sources import FAULT_TASK, RUNS_PER_TASK, HeldSandbox, PoolSource, open_pool_source
from sandbox.stress.server_metrics import PoolServerMetrics

MAX_TARGETS = RUNS_PER_TASK // 2
"""Maximum number of sessions that one fault targets."""
TARGET_FOLDER, TARGET_VARIABLE_VALUE = "/usr/lib", "kept"
"""Directory of a target session, and the value of a variable in its shell."""
PREPARE_COMMAND = f"cd {TARGET_FOLDER}; STRESS_STATE={TARGET_VARIABLE_VALUE}"
RUNNING_COMMAND = "sleep 2"
"""Command that runs while a session is the target of an outside fault."""
_FIRST = 2_000_000
"""Number of the first target session: no other session has it."""


class FaultContext:
    """The shared state of faults; leaving its ``async with`` block stops the private engine."""

    def __init__(self, stress: StressContext, host: SandboxHost, server: PoolServerMetrics | None) -> None:
        """``server``: the pool server that the run uses; None for the library."""
        self.stress, self.host, self.server = stress, host, server
        self.targets = min(MAX_TARGETS, stress.report.sessions)
        self._numbers = itertools.count(_FIRST)
        self._held = AsyncExitStack()
        self._engine: PrivateEngine | None = None

    async def __aenter__(self) -> Self:
        await self._held.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._held.aclose()

    def pool_name(self, what: str) -> str:
        """Return a pool name that is used once."""
        return f"stress-{os.getpid()}-{self.stress.run}-{what}"

    def session_number(self) -> int:
        """Return a session number that is used once."""
        return next(self._numbers)

    async def prepare_session(self, sandbox: HeldSandbox) -> CheckedSession:
        """Return a session in the directory and with the variable that will be checked. Closes ``sandbox`` when it
        raises SandboxLost, SandboxDestroyed or UnansweredCommandError."""
        checked = CheckedSession(sandbox, self.stress.report, self.stress.run, self.session_number())
        try:
            await checked.run_checked(PREPARE_COMMAND)
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return checked

    async def open_session(self, storage_mb: int | None = None) -> CheckedSession:
        """Return a prepared session of the source that the run measures.

        Raises SandboxStartError and the errors of :meth:`prepare_session`.
        """
        limits = {} if storage_mb is None else {"storage_mb": storage_mb}
        return await self.prepare_session(await self.stress.source.open(replace(FAULT_TASK, **limits)))

    async def private_engine(self) -> PrivateEngine | None:
        """Return a private engine, started at the first call; None if none can or may be started."""
        if self._engine is None and not self.server and not why_unavailable(self.host.docker_url):
            self._engine = await self._held.enter_async_context(PrivateEngine.running(self.host))
        return self._engine

    @asynccontextmanager
    async def open_private_pool(self, engine: PrivateEngine) -> AsyncGenerator[PoolSource]:
        """Open a pool on the private engine, which must be as empty afterwards as before."""
        async with DockerEngine(engine.host.docker_url) as client:
            before = await client.inventory()
            try:
                async with open_pool_source(
                    engine.host, self.pool_name("own"), self.targets, os.cpu_count() or 2
                ) as source:
                    yield source
            finally:
                self.stress.report.add_leaks(await asyncio.shield(wait_for_leaks(client, before)))
