"""The phases of a run that measure: acquire, start, one command at a time, all at once."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from protocol.errors import LongshoreError
from sandbox.stress import floor
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.concurrency import for_each
from sandbox.stress.floor import StartFloor
from sandbox.stress.report import StressReport
from sandbox.stress.sandbox_sources import SandboxSource, task_for_session

WARM_SANDBOXES = 16
"""Leases that are timed on a filled warm pool."""
_ROUND = 16
"""Starts, at most, between two looks at the floor."""
_ROUNDS = 4
"""Looks at the floor, at least, where there are sessions enough."""
_IN_A_ROW = 4
"""Commands, one at a time, before the next session has its turn."""
_TIMED = 2048
"""Commands, one at a time: the turns of 512 sessions."""
_EXEC_EVERY = 25
_TIMED_S = 60.0


@dataclass(slots=True)
class StressContext:
    """The state that the phases share."""

    report: StressReport
    source: SandboxSource
    run: str
    """Eight hexadecimal digits, in every nonce."""
    at_once: int
    """Starts at once, ours and the floor's."""

    async def open_session(self, number: int) -> CheckedSession:
        """A session that has answered once.  Raises SandboxStartError, SandboxLost, SandboxDestroyed."""
        seat = await self.source.open(task_for_session(number))
        talker = CheckedSession(seat, self.report, self.run, number)
        try:
            await talker.echo()
        except BaseException:
            await asyncio.shield(seat.close())
            raise
        return talker


async def measure_acquire(bench: StressContext) -> None:
    """Times of leases that a warm sandbox was ready for; no other is timed."""
    for number in range(WARM_SANDBOXES):
        if not await bench.source.wait_until_warm(WARM_SANDBOXES):
            return
        began = time.perf_counter()
        seat = await bench.source.open(task_for_session(0))
        ms = (time.perf_counter() - began) * 1000
        try:
            await CheckedSession(seat, bench.report, bench.run, 1_000_000 + number).echo()
        finally:
            await asyncio.shield(seat.close())
        bench.report.acquire_ms.append(ms)


@asynccontextmanager
async def start_sessions(
    bench: StressContext, start_floor: StartFloor, sessions: int
) -> AsyncGenerator[list[CheckedSession]]:
    """``sessions`` of them, started in rounds with the floor's between; closed when the block ends."""
    talkers: list[CheckedSession] = []
    report = bench.report

    async def one(number: int) -> None:
        try:
            talkers.append(await bench.open_session(number))
        except LongshoreError as error:
            report.add_failure(f"session {number} did not start: {error}")

    async def ours(numbers: range) -> None:
        began = time.perf_counter()
        there = len(talkers)
        await for_each(numbers, one, bench.at_once)
        report.starts.add(len(talkers) - there, time.perf_counter() - began)

    async def floors(count: int) -> None:
        report.floor_starts.add(count, await start_floor.time_starts(count, bench.at_once))

    gc.collect()
    resident = floor.resident_bytes()
    try:
        size = min(_ROUND, max(2 * bench.at_once, -(-sessions // _ROUNDS)))
        for turn, first in enumerate(range(0, sessions, size)):
            numbers = range(first, min(first + size, sessions))
            if turn % 2:
                await ours(numbers)
                await floors(len(numbers))
            else:
                await floors(len(numbers))
                await ours(numbers)
            report.live_peak = max(report.live_peak, sum(talker.sandbox.alive for talker in talkers))
        gc.collect()
        if talkers:
            report.bytes_per_session = max(0, floor.resident_bytes() - resident) // len(talkers)
        yield talkers
    finally:
        await asyncio.shield(for_each([talker.sandbox for talker in talkers], lambda seat: seat.close(), 16))


async def measure_single_commands(
    bench: StressContext, talkers: list[CheckedSession], engine_url: str, container: str
) -> None:
    """Each session in turn, a few commands long, and the floors in between: the local pipe after each command, `docker
    exec` now and then."""
    give_up = time.monotonic() + _TIMED_S
    report = bench.report
    async with floor.open_local_shell() as pipe:
        for number in range(_TIMED):
            if time.monotonic() > give_up:
                return
            word = f"floor-{bench.run}-{number}"
            if number % _EXEC_EVERY == 0:
                report.docker_exec_ms.append(await floor.time_docker_exec(engine_url, container, word))
            report.pipe_ms.append(await pipe.echo(word))
            report.command_ms.append(await talkers[number // _IN_A_ROW % len(talkers)].echo())
