"""What engines say of themselves, of those that answer at once: nobody waits for one that is in trouble."""

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
    """Sums up what a process counts which may begin anew at 0."""

    total: int = 0
    _last: int = 0

    def observe(self, count: int) -> None:
        self.total += count - self._last if count >= self._last else count
        self._last = count


class SampledTokenCounter:
    """Sums up over the lives of engines."""

    def __init__(self) -> None:
        self._tokens: dict[str, ResettingCounter] = defaultdict(ResettingCounter)

    async def count_tokens(self, engines: Sequence[Remote[Engine]]) -> int:
        """Tokens sampled by all engines so far; of one that does not answer at once, what it said last.  What an engine
        did not live to tell is not counted."""
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(self._ask_tokens(engine))
        return sum(counter.total for counter in self._tokens.values())

    async def _ask_tokens(self, engine: Remote[Engine]) -> None:
        with suppress(RemoteError, TimeoutError):
            async with asyncio.timeout(PROMPT_ANSWER_S):
                self._tokens[engine.name].observe((await engine.call(Engine.statistics)).sampled_tokens)


async def query_engine_loads(engines: Sequence[Remote[Engine]]) -> list[int]:
    """Requests that each engine has now; of those that answer at once."""
    found: list[int] = []

    async def ask(engine: Remote[Engine]) -> None:
        with suppress(RemoteError, TimeoutError):
            async with asyncio.timeout(PROMPT_ANSWER_S):
                statistics = await engine.call(Engine.statistics)
                found.append(statistics.running + statistics.queued)

    async with asyncio.TaskGroup() as group:
        for engine in engines:
            group.create_task(ask(engine))
    return found
