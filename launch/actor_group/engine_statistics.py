"""Statistics of all engines; an engine that does not answer at once is left out."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from launch.actor_group.health_monitor import PROMPT_ANSWER_S


@dataclass(slots=True)
class ResettingCounter:
    """Totals a count of a process that may restart at 0."""

    total: int = 0
    _last: int = 0

    def observe(self, count: int) -> None:
        self.total += count - self._last if count >= self._last else count
        self._last = count


class SampledTokenCounter:
    """Totals the tokens that engines sampled, over their restarts."""

    def __init__(self) -> None:
        self._tokens: dict[str, ResettingCounter] = defaultdict(ResettingCounter)

    async def count_tokens(self, engines: Sequence[Remote[Engine]]) -> int:
        """Return the tokens sampled by all engines so far.  For an engine that does not answer at once its last count
        is used; tokens that an engine sampled after its last report before it died are missing."""
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(self._update(engine))
        return sum(counter.total for counter in self._tokens.values())

    async def _update(self, engine: Remote[Engine]) -> None:
        with suppress(RemoteError, TimeoutError):
            async with asyncio.timeout(PROMPT_ANSWER_S):
                self._tokens[engine.name].observe((await engine.call(Engine.statistics)).sampled_tokens)


async def query_engine_loads(engines: Sequence[Remote[Engine]]) -> list[int]:
    """Return the number of requests of each engine that answers at once."""
    loads: list[int] = []

    async def query(engine: Remote[Engine]) -> None:
        with suppress(RemoteError, TimeoutError):
            async with asyncio.timeout(PROMPT_ANSWER_S):
                statistics = await engine.call(Engine.statistics)
                loads.append(statistics.running + statistics.queued)

    async with asyncio.TaskGroup() as group:
        for engine in engines:
            group.create_task(query(engine))
    return loads
