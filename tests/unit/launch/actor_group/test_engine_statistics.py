"""If these fail, the tokens of a dead engine are not counted, or a run waits for an engine to say how it is."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from actors.engines.interface import Engine
from actors.engines.messages import EngineStatistics
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from launch.actor_group import engine_statistics
from launch.actor_group.engine_statistics import SampledTokenCounter, query_engine_loads


class Counting:
    """Says what it has sampled; None while its process is being restarted."""

    def __init__(self, name: str, says: list[int | None], hangs_at: int = -1) -> None:
        self.name, self._says, self._hangs_at, self._asked = name, says, hangs_at, 0

    async def call(self, *_: object) -> EngineStatistics:
        counted, self._asked = self._says[self._asked], self._asked + 1
        if self._asked == self._hangs_at:
            await asyncio.sleep(60)
        if counted is None:
            raise RemoteError(self.name, "its process died")
        return EngineStatistics(sampled_tokens=counted)


async def test_sampled_tokens_are_summed_over_engine_restarts_without_waiting_for_an_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_statistics, "PROMPT_ANSWER_S", 0.01)
    well, often = Counting("engine-0", [30, 50]), Counting("engine-1", [20, 5, None, 7, 9], hangs_at=4)
    summed = SampledTokenCounter()
    assert [await summed.count_tokens([cast("Remote[Engine]", often)]) for _ in range(5)] == [20, 25, 25, 25, 29], (
        "anew at 5"
    )
    assert [await summed.count_tokens([cast("Remote[Engine]", well)]) for _ in range(2)] == [29 + 30, 29 + 50]


class Busy:
    """An engine that has so much to do; None where it does not answer."""

    def __init__(self, running: int | None, queued: int = 0) -> None:
        self.name, self._running, self._queued = "engine", running, queued

    async def call(self, *_: object) -> EngineStatistics:
        if self._running is None:
            await asyncio.sleep(60)
        return EngineStatistics(running=self._running or 0, queued=self._queued)


async def test_only_engines_that_answer_report_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_statistics, "PROMPT_ANSWER_S", 0.01)
    engines = [cast("Remote[Engine]", each) for each in (Busy(3), Busy(0, queued=2), Busy(None), Busy(0))]
    assert sorted(await query_engine_loads(engines)) == [0, 2, 3]
