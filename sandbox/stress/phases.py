"""The measuring phases of a run: acquire, start, and one command at a time."""

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
"""Number of leases that are timed on a filled warm pool."""
_ROUND = 16
"""Maximum starts between two measurements of the floor."""
_ROUNDS = 4
"""Minimum measurements of the floor, if there are enough sessions."""
_IN_A_ROW = 4
"""Commands, one at a time, before the next session follows."""
_TIMED = 2048
"""Number of commands that run one at a time: four in each of 512 sessions."""
_EXEC_EVERY = 25
_TIMED_S = 60.0


@dataclass(slots=True)
class StressContext:
    """The state that the phases share."""

    report: StressReport
    source: SandboxSource
    run: str
    """Eight hexadecimal digits, part of every nonce."""
    at_once: int
    """Starts at the same time, the pool's and the floor's."""

    async def open_session(self, number: int) -> CheckedSession:
        """Return a session that has answered once. Raises SandboxStartError, SandboxLost, SandboxDestroyed."""
        sandbox = await self.source.open(task_for_session(number))
        checked = CheckedSession(sandbox, self.report, self.run, number)
        try:
            await checked.echo()
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return checked


async def measure_acquire(stress: StressContext) -> None:
    """Time leases for which a warm sandbox was ready; others are not timed."""
    for number in range(WARM_SANDBOXES):
        if not await stress.source.wait_until_warm(WARM_SANDBOXES):
            return
        began = time.perf_counter()
        sandbox = await stress.source.open(task_for_session(0))
        ms = (time.perf_counter() - began) * 1000
        try:
            await CheckedSession(sandbox, stress.report, stress.run, 1_000_000 + number).echo()
        finally:
            await asyncio.shield(sandbox.close())
        stress.report.acquire_ms.append(ms)


@asynccontextmanager
async def start_sessions(
    stress: StressContext, start_floor: StartFloor, sessions: int
) -> AsyncGenerator[list[CheckedSession]]:
    """Start ``sessions`` sessions in rounds, alternating with the floor's; they are closed when the block ends."""
    checked_sessions: list[CheckedSession] = []
    report = stress.report

    async def one(number: int) -> None:
        try:
            checked_sessions.append(await stress.open_session(number))
        except LongshoreError as error:
            report.add_failure(f"session {number} did not start: {error}")

    async def start_round(numbers: range) -> None:
        began = time.perf_counter()
        started = len(checked_sessions)
        await for_each(numbers, one, stress.at_once)
        report.starts.add(len(checked_sessions) - started, time.perf_counter() - began)

    async def floor_round(count: int) -> None:
        report.floor_starts.add(count, await start_floor.time_starts(count, stress.at_once))

    gc.collect()
    resident = floor.resident_bytes()
    try:
        size = min(_ROUND, max(2 * stress.at_once, -(-sessions // _ROUNDS)))
        for turn, first in enumerate(range(0, sessions, size)):
            numbers = range(first, min(first + size, sessions))
            if turn % 2:
                await start_round(numbers)
                await floor_round(len(numbers))
            else:
                await floor_round(len(numbers))
                await start_round(numbers)
            report.live_peak = max(report.live_peak, sum(checked.sandbox.alive for checked in checked_sessions))
        gc.collect()
        if checked_sessions:
            report.bytes_per_session = max(0, floor.resident_bytes() - resident) // len(checked_sessions)
        yield checked_sessions
    finally:
        await asyncio.shield(
            for_each([checked.sandbox for checked in checked_sessions], lambda sandbox: sandbox.close(), 16)
        )


async def measure_single_commands(
    stress: StressContext, checked_sessions: list[CheckedSession], engine_url: str, container: str
) -> None:
    """Run a few commands in each session in turn, with the floors in between: the local pipe after each command,
    `docker exec` now and then."""
    give_up = time.monotonic() + _TIMED_S
    report = stress.report
    async with floor.open_local_shell() as pipe:
        for number in range(_TIMED):
            if time.monotonic() > give_up:
                return
            word = f"floor-{stress.run}-{number}"
            if number % _EXEC_EVERY == 0:
                report.docker_exec_ms.append(await floor.time_docker_exec(engine_url, container, word))
            report.pipe_ms.append(await pipe.echo(word))
            report.command_ms.append(await checked_sessions[number // _IN_A_ROW % len(checked_sessions)].echo())
