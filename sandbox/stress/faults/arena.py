"""What faults are given to break: sessions of the run's own place, and an engine that nobody else uses."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from sandbox.engine import DockerEngine
from sandbox.host import Host
from sandbox.leaks import left
from sandbox.stress.measure import Bench
from sandbox.stress.metrics import Metrics
from sandbox.stress.own_engine import OwnEngine, refusal
from sandbox.stress.places import RUNS_PER_TASK, STRUCK_TASK, LocalPlace, Seat, local_place
from sandbox.stress.talk import Talker

STRUCK = RUNS_PER_TASK // 2
"""Sessions that one fault strikes, at most."""
FOLDER, KEPT = "/usr/lib", "kept"
"""Where a session stands when it is struck, and what a variable of its shell holds."""
PREPARE = f"cd {FOLDER}; STRESS_STATE={KEPT}"
UNDER_WAY = "sleep 2"
"""What a session does that is struck from outside."""
_FIRST = 2_000_000
"""Number of the first struck session: none of the population has it."""


class Arena:
    """``async with Arena(...)``: leaving it stops the engine that faults were given."""

    def __init__(self, bench: Bench, host: Host, server: Metrics | None) -> None:
        """``server``: the pool server that the run asks; None for the library."""
        self.bench, self.host, self.server = bench, host, server
        self.struck = min(STRUCK, bench.report.sessions)
        self._numbers = itertools.count(_FIRST)
        self._held = AsyncExitStack()
        self._engine: OwnEngine | None = None

    async def __aenter__(self) -> Self:
        await self._held.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._held.aclose()

    def name(self, what: str) -> str:
        """Of a pool, used once."""
        return f"stress-{os.getpid()}-{self.bench.run}-{what}"

    def number(self) -> int:
        """Of a session, used once."""
        return next(self._numbers)

    async def prepared(self, seat: Seat) -> Talker:
        """A session that stands where it will be looked for, and holds what it will be asked for.  Closes ``seat`` when
        it raises: SandboxLost, SandboxDestroyed, Unanswered."""
        talker = Talker(seat, self.bench.report, self.bench.run, self.number())
        try:
            await talker.ask(PREPARE)
        except BaseException:
            await asyncio.shield(seat.close())
            raise
        return talker

    async def open(self, storage_mb: int | None = None) -> Talker:
        """A prepared session of the place that the run measures.

        Raises SandboxStartError and what :meth:`prepared` does.
        """
        limits = {} if storage_mb is None else {"storage_mb": storage_mb}
        return await self.prepared(await self.bench.place.open(replace(STRUCK_TASK, **limits)))

    async def engine(self) -> OwnEngine | None:
        """An engine of our own, started with the first call; None where there can be none, or must be none."""
        if self._engine is None and not self.server and not refusal(self.host.docker_url):
            self._engine = await self._held.enter_async_context(OwnEngine.running(self.host))
        return self._engine

    @asynccontextmanager
    async def on(self, engine: OwnEngine) -> AsyncGenerator[LocalPlace]:
        """A pool on our own engine, which has to be as empty afterwards as it was before."""
        async with DockerEngine(engine.host.docker_url) as client:
            before = await client.inventory()
            try:
                async with local_place(engine.host, self.name("own"), self.struck, os.cpu_count() or 2) as place:
                    yield place
            finally:
                self.bench.report.leaked(await asyncio.shield(left(client, before)))
