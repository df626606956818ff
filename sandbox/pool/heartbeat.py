"""Keeps a pool's sessions alive by a heartbeat, replaces their streams when they break, and asks at once why one ended.

Containers in which a session's tests run have a deadline of their own; otherwise they are treated like the session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sandbox.pool.warm_pool import WarmPool
from sandbox.session.sandbox_session import SandboxSession


class SessionHeartbeat:
    """The heartbeat of the sessions that were handed out, and of the warm ones in ``warm_pool``."""

    def __init__(self, timeout_s: float, warm_pool: WarmPool) -> None:
        self._timeout_s, self._warm_pool = timeout_s, warm_pool
        self._ends_at: dict[SandboxSession, float] = {}
        """End of each session on the monotonic clock."""
        self._verifiers: set[SandboxSession] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[object]] = set()

    def __iter__(self) -> Iterator[SandboxSession]:
        return iter(self._ends_at)

    def __len__(self) -> int:
        return len(self._ends_at)

    def watch(self, session: SandboxSession, lifetime_s: float) -> None:
        """Keep a session alive for at most ``lifetime_s`` from now."""
        self._ends_at[session] = time.monotonic() + lifetime_s
        self._extend(session)
        self.resume_when_broken(session)
        self._ask_when_ended(session)
        session.watch_verifier = self._watched

    def unwatch(self, session: SandboxSession) -> None:
        """Stop keeping a session alive."""
        session.on_stream_broken = session.on_ended = None
        del self._ends_at[session]

    def resume_when_broken(self, session: SandboxSession) -> None:
        """Replace the session's stream when it breaks, if the container outlives its daemon."""
        if session.spec is not None and not session.spec.auto_remove:  # the container outlives its daemon
            session.on_stream_broken = lambda: self._revive(session)

    def _ask_when_ended(self, session: SandboxSession) -> None:
        """Ask the daemon for the cause of the session's end at once.

        Its next caller may come minutes later, and dockerd remembers its last 256 events, those of all containers.
        """

        def ask() -> None:
            if self._tasks is not None:
                self._run(self._tasks, session.end_reason())  # which keeps the answer

        session.on_ended = ask

    def writable_sessions(self) -> tuple[SandboxSession, ...]:
        """Return all sessions in which processes may write, verifiers included."""
        return (*self._ends_at, *self._verifiers)

    @contextmanager
    def _watched(self, verifier: SandboxSession) -> Generator[None]:
        self._verifiers.add(verifier)
        self.resume_when_broken(verifier)
        self._ask_when_ended(verifier)
        try:
            yield
        finally:
            verifier.on_stream_broken = verifier.on_ended = None
            self._verifiers.discard(verifier)

    @asynccontextmanager
    async def running(self, *others: Coroutine[None, None, None]) -> AsyncGenerator[None]:
        """Run the heartbeat and ``others`` until the end of the block."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for each in (self._beat(), *others):
                self._run(tasks, each)
            try:
                yield
            finally:
                self._tasks = None
                for each in self._running:
                    each.cancel()

    def _run(self, tasks: asyncio.TaskGroup, work: Coroutine[None, None, object]) -> None:
        task = tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _beat(self) -> None:
        """Extend every session's life, three times within the deadline of one that is not extended."""
        while True:
            await asyncio.sleep(self._timeout_s / 3)
            for session in self._ends_at:
                self._extend(session)
            self._warm_pool.maintain()

    def _extend(self, session: SandboxSession) -> None:
        """Extend a session's life, but not beyond its end: a warm container's maximum is not its task's."""
        left = self._ends_at[session] - time.monotonic()
        session.extend(min(self._timeout_s, max(left, 0.001)))

    def _revive(self, session: SandboxSession) -> None:
        if self._tasks is not None:
            self._run(self._tasks, session.resume())
        else:
            session.give_up("its pool is being closed")
