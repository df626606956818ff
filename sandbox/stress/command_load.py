"""Load of a stress run: all sessions run commands at once, and each reports what it executed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from protocol.errors import LongshoreError
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.concurrency import for_each
from sandbox.stress.phases import StressContext
from sandbox.stress.report import StressReport

_LOAD_MOST = 100_000
"""Times that are kept."""


class CommandLoad:
    """All sessions at once, each with one command after another."""

    def __init__(self, bench: StressContext, commands: tuple[str, ...], rate: float) -> None:
        """``rate``: commands a second, all sessions together; 0: as fast as they are answered."""
        self._report, self._commands = bench.report, commands
        self._every_s = 1 / rate if rate else 0.0
        self._next_at = 0.0

    async def run(self, talkers: list[CheckedSession], until: Callable[[], bool], *, timed: bool = True) -> None:
        """Until ``until()``, asked before each command.  A session that is lost is a failure, and the others go on."""
        began, before = time.perf_counter(), self._report.commands
        self._next_at = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for index, talker in enumerate(talkers):
                group.create_task(self._session(index, talker, until, timed=timed))
        if timed:
            self._report.load.add(self._report.commands - before, time.perf_counter() - began)

    async def _session(self, index: int, talker: CheckedSession, until: Callable[[], bool], *, timed: bool) -> None:
        number = index
        try:
            while True:
                await self._turn()
                if until():
                    return
                began = time.perf_counter()
                await talker.run_checked(self._commands[number % len(self._commands)])
                if timed and len(self._report.load_ms) < _LOAD_MOST:
                    self._report.load_ms.append((time.perf_counter() - began) * 1000)
                number += 1
        except LongshoreError as error:
            self._report.add_failure(f"session {index} was lost under load: {type(error).__name__}: {error}")

    async def _turn(self) -> None:
        """The time of the next command, when there is a rate."""
        if self._every_s:
            now = asyncio.get_running_loop().time()
            mine = self._next_at = max(self._next_at + self._every_s, now)
            await asyncio.sleep(mine - now)


async def check_ledgers(report: StressReport, talkers: list[CheckedSession]) -> None:
    """Read back what every sandbox executed."""

    async def one(talker: CheckedSession) -> None:
        try:
            await talker.check_ledger()
        except (LongshoreError, OSError) as error:
            report.add_failure(f"a sandbox could not say what it executed: {type(error).__name__}: {error}")

    await for_each(talkers, one, 16)
