"""What faults act on: sessions of the run's own source, and an engine that nobody else uses."""

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

MOST_STRUCK = RUNS_PER_TASK // 2
"""Sessions that one fault strikes, at most."""
STRUCK_FOLDER, STRUCK_VARIABLE_VALUE = "/usr/lib", "kept"
"""Directory of a session that is struck, and the value of a variable in its shell."""
PREPARE_COMMAND = f"cd {STRUCK_FOLDER}; STRESS_STATE={STRUCK_VARIABLE_VALUE}"
RUNNING_COMMAND = "sleep 2"
"""Command that runs while a session is struck from outside."""
_FIRST = 2_000_000
"""Number of the first struck session: none of the population has it."""


class FaultContext:
    """``async with Arena(...)``: leaving it stops the engine that faults were given."""

    def __init__(self, bench: StressContext, host: SandboxHost, server: PoolServerMetrics | None) -> None:
        """``server``: the pool server that the run asks; None for the library."""
        self.bench, self.host, self.server = bench, host, server
        self.struck = min(MOST_STRUCK, bench.report.sessions)
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
        return f"stress-{os.getpid()}-{self.bench.run}-{what}"

    def session_number(self) -> int:
        """Return a session number that is used once."""
        return next(self._numbers)

    async def prepare_session(self, seat: HeldSandbox) -> CheckedSession:
        """A session that stands where it will be looked for, and holds what it will be asked for.  Closes ``seat`` when
        it raises: SandboxLost, SandboxDestroyed, Unanswered."""
        talker = CheckedSession(seat, self.bench.report, self.bench.run, self.session_number())
        try:
            await talker.run_checked(PREPARE_COMMAND)
        except BaseException:
            await asyncio.shield(seat.close())
            raise
        return talker

    async def open_session(self, storage_mb: int | None = None) -> CheckedSession:
        """A prepared session of the place that the run measures.

        Raises SandboxStartError and what :meth:`prepared` does.
        """
        limits = {} if storage_mb is None else {"storage_mb": storage_mb}
        return await self.prepare_session(await self.bench.source.open(replace(FAULT_TASK, **limits)))

    async def private_engine(self) -> PrivateEngine | None:
        """An engine of our own, started with the first call; None where there can be none, or must be none."""
        if self._engine is None and not self.server and not why_unavailable(self.host.docker_url):
            self._engine = await self._held.enter_async_context(PrivateEngine.running(self.host))
        return self._engine

    @asynccontextmanager
    async def open_private_pool(self, engine: PrivateEngine) -> AsyncGenerator[PoolSource]:
        """A pool on our own engine, which has to be as empty afterwards as it was before."""
        async with DockerEngine(engine.host.docker_url) as client:
            before = await client.inventory()
            try:
                async with open_pool_source(
                    engine.host, self.pool_name("own"), self.struck, os.cpu_count() or 2
                ) as place:
                    yield place
            finally:
                self.bench.report.add_leaks(await asyncio.shield(wait_for_leaks(client, before)))
