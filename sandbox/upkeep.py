"""What keeps a pool's sessions going: a heartbeat, an eye on their disks, and a new stream where one broke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager

from sandbox.disk import DiskWatch
from sandbox.session import SandboxSession
from sandbox.supply import Supply


class Upkeep:
    """Of the sessions that were handed out, and of those that wait in ``supply``."""

    def __init__(self, unattended_s: float, supply: Supply) -> None:
        self._unattended_s, self._supply = unattended_s, supply
        self._ends_at: dict[SandboxSession, float] = {}
        """On the monotonic clock."""
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[SandboxSession]:
        return iter(self._ends_at)

    def __len__(self) -> int:
        return len(self._ends_at)

    def begin(self, session: SandboxSession, max_s: float) -> None:
        """It lives for ``max_s`` from now at most."""
        self._ends_at[session] = time.monotonic() + max_s
        self._extend(session)
        if session.spec is not None and not session.spec.auto_remove:  # it outlives its daemon
            session.on_cut = lambda: self._revive(session)

    def end(self, session: SandboxSession) -> None:
        session.on_cut = None
        del self._ends_at[session]

    @asynccontextmanager
    async def running(self, *, watch_disks: bool) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._run(tasks, self._beat())
            if watch_disks:
                self._run(tasks, DiskWatch(lambda: self._ends_at).run())
            try:
                yield
            finally:
                self._tasks = None
                for each in self._running:
                    each.cancel()

    def _run(self, tasks: asyncio.TaskGroup, work: Coroutine[None, None, None]) -> None:
        task = tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _beat(self) -> None:
        """Extend every session's life, three times within the time that one would survive alone."""
        while True:
            await asyncio.sleep(self._unattended_s / 3)
            for session in self._ends_at:
                self._extend(session)
            self._supply.tend()

    def _extend(self, session: SandboxSession) -> None:
        """Never past its own end: a warm container's maximum is not its task's."""
        left = self._ends_at[session] - time.monotonic()
        session.extend(min(self._unattended_s, max(left, 0.001)))

    def _revive(self, session: SandboxSession) -> None:
        if self._tasks is not None:
            self._run(self._tasks, session.resume())
        else:
            session.give_up("its pool is being closed")
