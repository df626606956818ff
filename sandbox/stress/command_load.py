"""Load of a stress run: all sessions run commands at the same time; then each reports what it executed."""

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
"""Maximum number of times that are kept."""


class CommandLoad:
    """Runs one command after another in all sessions at the same time."""

    def __init__(self, stress: StressContext, commands: tuple[str, ...], rate: float) -> None:
        """``rate``: commands per second of all sessions together; 0: as fast as they are answered."""
        self._report, self._commands = stress.report, commands
        self._every_s = 1 / rate if rate else 0.0
        self._next_at = 0.0

    async def run(
        self, checked_sessions: list[CheckedSession], until: Callable[[], bool], *, timed: bool = True
    ) -> None:
        """Run until ``until()``, checked before each command. A lost session is a failure, and the others continue."""
        began, before = time.perf_counter(), self._report.commands
        self._next_at = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for index, checked in enumerate(checked_sessions):
                group.create_task(self._session(index, checked, until, timed=timed))
        if timed:
            self._report.load.add(self._report.commands - before, time.perf_counter() - began)

    async def _session(self, index: int, checked: CheckedSession, until: Callable[[], bool], *, timed: bool) -> None:
        number = index
        try:
            while True:
                await self._wait_for_rate()
                if until():
                    return
                began = time.perf_counter()
                await checked.run_checked(self._commands[number % len(self._commands)])
                if timed and len(self._report.load_ms) < _LOAD_MOST:
                    self._report.load_ms.append((time.perf_counter() - began) * 1000)
                number += 1
        except LongshoreError as error:
            self._report.add_failure(f"session {index} was lost under load: {type(error).__name__}: {error}")

    async def _wait_for_rate(self) -> None:
        """Wait until the time of the next command, if there is a rate."""
        if self._every_s:
            now = asyncio.get_running_loop().time()
            due = self._next_at = max(self._next_at + self._every_s, now)
            await asyncio.sleep(due - now)


async def check_ledgers(report: StressReport, checked_sessions: list[CheckedSession]) -> None:
    """Read back what every sandbox executed."""

    async def one(checked: CheckedSession) -> None:
        try:
            await checked.check_ledger()
        except (LongshoreError, OSError) as error:
            report.add_failure(f"a sandbox's ledger could not be read: {type(error).__name__}: {error}")

    await for_each(checked_sessions, one, 16)
