"""Sandboxes for many episodes: bounded in number and in how many start at once, kept alive by one heartbeat.

A container lives on because this process says so every few seconds.  When the process dies its containers end by
themselves, so nothing at exit has to work; ``sweep`` at start only removes what was created and never started, and
touches no container but those of its own pool name whose owner is proved dead or whose expiry is long past.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from protocol.errors import InfraError
from sandbox import owner
from sandbox.disk import DiskBound, DiskWatch, probe
from sandbox.engine import ContainerLimits, ContainerSpec, DockerEngine
from sandbox.errors import SandboxStartError
from sandbox.host import Host, current_host
from sandbox.session import SandboxSession, SessionLimits
from sandbox.sweep import LABEL, sweep
from sandbox.tasks.task import Task

_SHELL_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
}


@dataclass(frozen=True, slots=True)
class PoolSettings:
    pool: str
    """Name of this pool: a sweep never looks beyond it."""
    run_id: str
    capacity: int
    """Sessions alive at once."""
    start_concurrency: int = 2
    """Containers starting at once: about the number of cores."""
    unattended_s: float = 60.0
    """A container ends after this long without a heartbeat."""
    session_max_s: float = 3600.0
    """A session ends after this long, whatever happens."""
    start_timeout_s: float = 60.0
    """Longest start of one container."""
    setup_timeout_s: float = 120.0
    """Longest run of a task's setup script."""
    image: str = ""
    """Image of tasks that name none; empty for the host's base image."""
    drain_s: float = 60.0
    """How long leaving the pool waits for the daemon to remove what has ended."""


class PoolStatistics(NamedTuple):
    capacity: int
    live: int
    starting: int
    waiting: int
    started: int
    closed: int
    failed_starts: int
    swept: int
    start_ms_mean: float


class SandboxPool:
    """``async with SandboxPool(settings) as pool: async with pool.acquire(task) as session: ...``"""

    def __init__(self, settings: PoolSettings, host: Host | None = None, now: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.host = host or current_host()
        self.engine = DockerEngine(self.host.docker_url)
        self._now = now
        self._owner = owner.this_process()
        self._room = asyncio.Semaphore(settings.capacity)
        self._starts = asyncio.Semaphore(settings.start_concurrency)
        self._sessions: set[SandboxSession] = set()
        self._lease = uuid.uuid4().hex
        self._tasks = asyncio.TaskGroup()
        self._background: list[asyncio.Task[None]] = []
        self._live_restore = False
        self.disk_bound = DiskBound.FILE_SIZE
        """What holds the disk limit on this host, once the pool is open."""
        self._waiting = self._starting = self._started = self._closed = self._failed = self._swept = 0
        self._start_ms = 0.0

    async def __aenter__(self) -> Self:
        await self.engine.__aenter__()
        try:
            await self.sweep()
            self._live_restore = await self.engine.live_restore()
            self.disk_bound = await probe(self.engine, self._spec(Task("probe", ""), self.settings.start_timeout_s))
            await self._tasks.__aenter__()
        except BaseException:
            await self.engine.__aexit__(None, None, None)
            raise
        self._background.append(self._tasks.create_task(self._beat()))
        if self.disk_bound is DiskBound.WATCH:
            self._background.append(self._tasks.create_task(DiskWatch(lambda: self._sessions).run()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._background:
            each.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # the caller's own error leaves as it is, not in a group
        finally:
            await asyncio.shield(self._drain())

    @asynccontextmanager
    async def acquire(self, task: Task, deadline_s: float | None = None) -> AsyncGenerator[SandboxSession]:
        """A fresh sandbox, set up for ``task``; it lives for ``deadline_s`` at most (default: the pool's maximum).

        Raises SandboxStartError.
        """
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            session = await self._start(task, deadline_s or self.settings.session_max_s)
            try:
                yield session
            finally:
                self._sessions.discard(session)
                await session.close()
                self._closed += 1
        finally:
            self._room.release()

    async def _start(self, task: Task, max_s: float) -> SandboxSession:
        limits = SessionLimits(min(self.settings.unattended_s, max_s), max_s)
        async with self._starts:
            began = time.perf_counter()
            self._starting += 1
            try:
                async with asyncio.timeout(self.settings.start_timeout_s):
                    session = await SandboxSession.start(self.engine, self._spec(task, max_s), task.workdir, limits)
            except TimeoutError as error:
                self._failed += 1
                raise SandboxStartError(
                    f"no sandbox within start_timeout_s = {self.settings.start_timeout_s:g}: lower start_concurrency, "
                    "or look at the daemon's log"
                ) from error
            except SandboxStartError:
                self._failed += 1
                raise
            finally:
                self._starting -= 1
            self._start_ms += (time.perf_counter() - began) * 1000
            self._started += 1
        self._sessions.add(session)
        try:
            await session.setup(task.files, task.setup, self.settings.setup_timeout_s)
        except BaseException:
            self._sessions.discard(session)
            self._failed += 1
            await session.close()
            raise
        return session

    def _spec(self, task: Task, max_s: float) -> ContainerSpec:
        return ContainerSpec(
            image=task.image or self.settings.image or self.host.base_image,
            kit=self.host.kit,
            labels={
                f"{LABEL}.run": self.settings.run_id,
                f"{LABEL}.pool": self.settings.pool,
                f"{LABEL}.owner": self._owner,
                f"{LABEL}.lease": self._lease,
                f"{LABEL}.expires": str(int(self._now() + max_s)),
            },
            env=_SHELL_ENV,
            limits=ContainerLimits(task.memory_mb << 20, task.pids, task.cpus, disk_bytes=task.storage_mb << 20),
            disk_quota=self.disk_bound.by_daemon,
            auto_remove=not self._live_restore,
        )

    async def _beat(self) -> None:
        """Extend every session's life, three times within the time that one would survive alone."""
        while True:
            await asyncio.sleep(self.settings.unattended_s / 3)
            for session in self._sessions:
                session.extend(self.settings.unattended_s)

    async def sweep(self) -> int:
        """Remove this pool's containers whose owner is proved dead or whose expiry is past.  Returns how many."""
        removed = await sweep(self.engine, "pool", self.settings.pool, self._now)
        self._swept += removed
        return removed

    async def _drain(self) -> None:
        """Wait until the daemon has removed what this pool started; help where it does not."""
        mine = {f"{LABEL}.lease": self._lease}
        try:
            for session in tuple(self._sessions):
                await session.close()
            give_up = time.monotonic() + self.settings.drain_s
            while left := await self.engine.containers(mine):
                late = time.monotonic() > give_up
                for each in left:
                    if late or each.state == "created":  # one that never ran has no deadline of its own
                        await self.engine.remove(each.id)
                await asyncio.sleep(0.05)
        except InfraError:
            return  # a daemon that cannot be asked: the containers end at their own deadline
        finally:
            await self.engine.__aexit__(None, None, None)

    def statistics(self) -> PoolStatistics:
        mean = self._start_ms / self._started if self._started else 0.0
        return PoolStatistics(
            self.settings.capacity,
            len(self._sessions),
            self._starting,
            self._waiting,
            self._started,
            self._closed,
            self._failed,
            self._swept,
            mean,
        )
