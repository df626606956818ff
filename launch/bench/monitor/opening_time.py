"""Measures the time until the first page of a long run is complete, and the server's memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp
import orjson

from launch.bench.monitor.monitor_process import serve_monitor
from launch.bench.server_process import ServerProcess
from protocol.errors import InfraError

_FIRST = ("/", "/api/runs/-/head", "/api/runs/-/steps?limit=50", "/api/runs/-/trajectories?limit=100")
"""Requests of the first page."""
_USE = (
    *("/api/runs", "/api/runs/-/state", "/api/runs/-/metrics", "/api/runs/-/groups?sort=spread&limit=200"),
    *("/api/runs/-/trajectories?step=last&sort=worst&limit=500", "/api/runs/-/trajectories?q=s03&sort=logprob_gap"),
    *("/api/runs/-/trajectories?status=turn_limit&reward_max=0.3&sort=longest", "/api/runs/-/activity?slots=600"),
    *("/api/runs/-/groups/7", "/api/runs/-/trajectories/train-g000007-s03"),
    *("/api/runs/-/trajectories/train-g000007-s03/tokens?limit=4000", "/api/runs/-/trajectories?task=sort&limit=500"),
)
"""Requests of the pages that a person opens next."""
_ROUNDS = 3
_SETTLE_S = 300.0


@dataclass(frozen=True, slots=True)
class OpeningMeasurement:
    open_s: float
    """Median over all opens."""
    opens_s: Sequence[float]
    slowest_answer_s: float
    """Slowest response to each later request, in seconds."""
    rss_mb: float
    """Peak memory after the whole run was read."""


async def measure_opening(run_dir: Path, trajectories: int, opens: int) -> OpeningMeasurement:
    """Measure.  Raises InfraError for a wrong response."""
    taken: list[float] = []
    slowest = rss = 0.0
    for number in range(opens):
        began = time.monotonic()
        async with serve_monitor(run_dir) as server, aiohttp.ClientSession() as session:
            await _load_first_page(session, server, trajectories)
            taken.append(time.monotonic() - began)
            if number == opens - 1:
                slowest, rss = await _measure_settled(session, server)
    return OpeningMeasurement(median(taken), taken, slowest, rss)


async def _load_first_page(session: aiohttp.ClientSession, server: ServerProcess, trajectories: int) -> None:
    answers = [await _get(session, server.url + path) for path in _FIRST]
    head, listed = orjson.loads(answers[1]), orjson.loads(answers[3])
    if head["trajectories"] != trajectories or listed["total"] != trajectories or len(listed["rows"]) != 100:
        raise InfraError(f"the first page lists {listed['total']} trajectories, and there are {trajectories}")


async def _measure_settled(session: aiohttp.ClientSession, server: ServerProcess) -> tuple[float, float]:
    """Return the slowest response and the peak memory after the whole run was read."""
    behind = 1
    async with asyncio.timeout(_SETTLE_S):
        while behind:
            await asyncio.sleep(0.2)
            behind = orjson.loads(await _get(session, f"{server.url}/api/runs/-/head"))["behind_bytes"]
    slowest, rss = 0.0, server.rss_mb
    for _ in range(_ROUNDS):
        for path in _USE:
            began = time.monotonic()
            await _get(session, server.url + path)
            slowest, rss = max(slowest, time.monotonic() - began), max(rss, server.rss_mb)
    return slowest, rss


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        body = await answer.read()
    if answer.status != 200:
        raise InfraError(f"{url} answers {answer.status}: {body[:200]!r}")
    return body
