"""Sandboxes for many episodes: bounded in number, started as fast as the machine can, kept alive by one heartbeat.

Some may be kept warm: started, checked, and waiting for a task of their kind.  They count within the pool's capacity
and make room for a task that needs it.  How many start at once follows from how long starts take (sandbox.pacing).

A container lives on because this process says so every few seconds.  When the process dies its containers end by
themselves, so nothing at exit has to work; ``sweep`` at start only removes what was created and never started, and
touches no container but those of its own pool name whose owner is proved dead or whose expiry is long past.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from protocol.errors import InfraError
from sandbox import owner, wire
from sandbox.capable import refuse
from sandbox.disk import DiskBound, DiskWatch, probe
from sandbox.engine import ContainerLimits, ContainerSpec, DockerEngine
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError
from sandbox.host import Host, current_host
from sandbox.images.context import image_name
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.pacing import Pace, StartGate
from sandbox.pool_settings import PoolSettings, PoolStatistics
from sandbox.session import SandboxSession, SessionLimits
from sandbox.sweep import LABEL, sweep
from sandbox.tasks.task import Task
from sandbox.warm import Kind, WarmShelf

_SHELL_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
}
_CHECK_S = 5.0
"""A warm sandbox that does not answer by then is not handed out."""


class SandboxPool:
    """``async with SandboxPool(settings) as pool: async with pool.acquire(task) as session: ...``"""

    def __init__(self, settings: PoolSettings, host: Host | None = None, now: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.host = host or current_host()
        self.engine = DockerEngine(self.host.docker_url)
        self._now = now
        self._owner = settings.owner or owner.this_process()
        self._room = asyncio.Semaphore(settings.capacity)
        first = settings.start_concurrency
        self._gate = StartGate(Pace(first, max(first, settings.start_concurrency_max)))
        self._shelf = WarmShelf(settings.warm, settings.warm_max_age_s)
        self._sessions: dict[SandboxSession, float] = {}
        """Handed out → when it must end, on the monotonic clock."""
        self._reserved: dict[SandboxSession, AsyncExitStack] = {}
        """Handed out → what is given back after it: its image."""
        self._images: ImageStore | None = None
        self._lease = uuid.uuid4().hex
        self._tasks = asyncio.TaskGroup()
        self._background: list[asyncio.Task[None]] = []
        self._fills: set[asyncio.Task[None]] = set()
        self._live_restore = False
        self.disk_bound = DiskBound.FILE_SIZE
        """What holds the disk limit on this host, once the pool is open."""
        self._waiting = self._starting = self._started = self._closed = self._failed = self._swept = self._hits = 0
        self._start_ms = 0.0

    async def __aenter__(self) -> Self:
        await self.engine.__aenter__()
        try:
            await self.sweep()
            self._live_restore = await self.engine.live_restore()
            self._images = await ImageStore.open(self.engine, ImageSettings(self.host.home, self._default_image))
            spec = self._spec(self._kind(Task("probe", ""), self._default_image), self.settings.start_timeout_s)
            self.disk_bound = await probe(self.engine, spec)
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
        for task in (*self._background, *self._fills):
            task.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # the caller's own error leaves as it is, not in a group
        finally:
            await asyncio.shield(self._drain())

    @asynccontextmanager
    async def acquire(self, task: Task, deadline_s: float | None = None) -> AsyncGenerator[SandboxSession]:
        """A fresh sandbox, set up for ``task``; it lives for ``deadline_s`` at most (default: the pool's maximum).

        Raises SandboxStartError, TaskBeyondPool.
        """
        session = await self.open(task, deadline_s)
        try:
            yield session
        finally:
            await self.close(session)

    async def open(self, task: Task, deadline_s: float | None = None) -> SandboxSession:
        """:meth:`acquire` without the context: whoever calls must :meth:`close`.

        Raises SandboxStartError, TaskBeyondPool.
        """
        refuse(task)
        async with AsyncExitStack() as reserved:
            kind = self._kind(task, await reserved.enter_async_context(self.images.reserved(task)))
            session = await self._opened(kind, task, deadline_s or self.settings.session_max_s)
            self._reserved[session] = reserved.pop_all()
        self._refill(kind, self.settings.warm)
        return session

    async def _opened(self, kind: Kind, task: Task, max_s: float) -> SandboxSession:
        session = await self._warm(kind)
        if session is None:
            await self._enter_room()
            try:
                session = await self._start(kind, max_s)
            except BaseException:
                self._room.release()
                raise
        self._sessions[session] = time.monotonic() + max_s
        self._extend(session)
        try:
            await session.setup(task.files, task.setup, self.settings.setup_timeout_s)
        except BaseException:
            self._failed += 1
            await self._end(session)
            raise
        return session

    async def close(self, session: SandboxSession) -> None:
        """End a session that :meth:`open` or :meth:`adopt` gave."""
        await self._end(session)
        self._closed += 1

    async def adopt(self, container: str, task: Task, deadline_s: float | None = None) -> SandboxSession:
        """Take over a running container of this pool's whose process has died; what it was doing is killed.

        Raises SandboxLost.
        """
        if self._room.locked():
            raise SandboxLost(f"container {container[:12]} has no place in a pool of {self.settings.capacity}")
        await self._room.acquire()
        try:
            session = await SandboxSession.adopt(self.engine, container, task.workdir)
        except BaseException:
            self._room.release()
            raise
        max_s = deadline_s or self.settings.session_max_s
        image = task.image or self._default_image
        if task.build is not None:
            image = image_name(task.build)
        session.spec = self._spec(self._kind(task, image), max_s)  # as it was made: so it can be copied and graded
        self._sessions[session] = time.monotonic() + max_s
        self._extend(session)
        return session

    async def warm(self, task: Task, count: int) -> None:
        """Wait until ``count`` sandboxes of the task's kind are ready, or as many as there is room for.

        Raises TaskBeyondPool.
        """
        refuse(task)
        async with self.images.reserved(task) as image:
            self._refill(self._kind(task, image), count)
            for fill in tuple(self._fills):
                await asyncio.shield(fill)

    def wait_s(self) -> float:
        """How long one that asks now waits for its start to begin, as starts go at present."""
        return self._gate.pace.wait_s(self._gate.queued + self._waiting)

    async def _end(self, session: SandboxSession) -> None:
        """Free the place even when the daemon does not answer: the container ends at its own deadline."""
        self._sessions.pop(session, None)
        try:
            await session.close()
        finally:
            self._room.release()
            await self._give_back(session)

    async def _give_back(self, session: SandboxSession) -> None:
        reserved = self._reserved.pop(session, None)
        if reserved is not None:
            await reserved.aclose()

    async def _warm(self, kind: Kind) -> SandboxSession | None:
        """A warm sandbox that answers; its place comes with it."""
        while (session := self._shelf.take(kind)) is not None:
            try:
                await session.answered(session.request(self._still), _CHECK_S)
            except (TimeoutError, SandboxLost, SandboxDestroyed):
                await self._end(session)
            except BaseException:
                await self._end(session)
                raise
            else:
                self._hits += 1
                return session
        return None

    async def _enter_room(self) -> None:
        """A place for one more; a warm sandbox of another kind gives its own up."""
        if self._room.locked() and (spare := self._shelf.spare()) is not None:
            await self._end(spare)
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1

    async def _start(self, kind: Kind, max_s: float, *, urgent: bool = True) -> SandboxSession:
        limits = SessionLimits(min(self.settings.unattended_s, max_s), max_s)
        try:
            async with self._gate.turn(urgent=urgent):
                began = time.perf_counter()
                self._starting += 1
                try:
                    async with asyncio.timeout(self.settings.start_timeout_s):
                        spec = self._spec(kind, max_s)
                        session = await SandboxSession.start(self.engine, spec, kind.workdir, limits)
                finally:
                    self._starting -= 1
        except TimeoutError as error:
            self._failed += 1
            raise SandboxStartError(
                f"no sandbox within start_timeout_s = {self.settings.start_timeout_s:g}: lower start_concurrency, "
                "or look at the daemon's log"
            ) from error
        except SandboxStartError:
            self._failed += 1
            raise
        self._start_ms += (time.perf_counter() - began) * 1000
        self._started += 1
        return session

    def _refill(self, kind: Kind, wanted: int) -> None:
        """Start what the shelf lacks, where nobody waits for the room."""
        for _ in range(self._shelf.missing(kind, wanted)):
            self._shelf.filling(kind, +1)
            fill = self._tasks.create_task(self._fill(kind))
            self._fills.add(fill)
            fill.add_done_callback(self._fills.discard)

    async def _fill(self, kind: Kind) -> None:
        try:
            if self._waiting or self._room.locked():
                return
            await self._room.acquire()
            try:
                max_s = self.settings.session_max_s + self.settings.warm_max_age_s
                session = await self._start(kind, max_s, urgent=False)
            except BaseException as error:
                self._room.release()
                if isinstance(error, SandboxStartError):  # counted; the next task of this kind says why
                    return
                raise
            if self._waiting:
                await self._end(session)
            else:
                self._shelf.put(kind, session, time.monotonic())
        finally:
            self._shelf.filling(kind, -1)

    @property
    def images(self) -> ImageStore:
        """Where its tasks' images come from, while the pool is open."""
        if self._images is None:
            raise RuntimeError("use `async with SandboxPool(...)`")
        return self._images

    @property
    def _default_image(self) -> str:
        return self.settings.image or self.host.base_image

    def _kind(self, task: Task, image: str) -> Kind:
        return Kind(
            image,
            task.workdir,
            ContainerLimits(task.memory_mb << 20, task.pids, task.cpus, disk_bytes=task.storage_mb << 20),
            tuple(sorted({**_SHELL_ENV, **task.env}.items())),
        )

    def _spec(self, kind: Kind, max_s: float) -> ContainerSpec:
        return ContainerSpec(
            image=kind.image,
            kit=self.host.kit,
            labels={
                f"{LABEL}.run": self.settings.run_id,
                f"{LABEL}.pool": self.settings.pool,
                f"{LABEL}.owner": self._owner,
                f"{LABEL}.lease": self._lease,
                f"{LABEL}.expires": str(int(self._now() + max_s)),
            },
            env=dict(kind.env),
            limits=kind.limits,
            disk_quota=self.disk_bound.by_daemon,
            auto_remove=not self._live_restore,
        )

    async def _beat(self) -> None:
        """Extend every session's life, three times within the time that one would survive alone."""
        while True:
            await asyncio.sleep(self.settings.unattended_s / 3)
            for session in self._sessions:
                self._extend(session)
            for session in self._shelf.unfit(time.monotonic()):
                await self._end(session)
            for session in self._shelf:
                session.extend(self.settings.unattended_s)

    def _still(self, request: int) -> bytes:
        """PID 1's answer to this shows that it is there."""
        return wire.extend(request, round(self.settings.unattended_s * 1000))

    def _extend(self, session: SandboxSession) -> None:
        """Never past its own end: a warm container's maximum is not its task's."""
        left = self._sessions[session] - time.monotonic()
        session.extend(min(self.settings.unattended_s, max(left, 0.001)))

    async def sweep(self) -> int:
        """Remove this pool's containers whose owner is proved dead or whose expiry is past.  Returns how many."""
        removed = await sweep(self.engine, "pool", self.settings.pool, self._now)
        self._swept += removed
        return removed

    async def _drain(self) -> None:
        """Wait until the daemon has removed what this pool started; help where it does not."""
        mine = {f"{LABEL}.lease": self._lease}
        try:
            async with asyncio.TaskGroup() as group:
                for session in (*self._sessions, *self._shelf):
                    group.create_task(session.close())
            for session in tuple(self._reserved):
                await self._give_back(session)
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
            self._waiting + self._gate.queued,
            self._started,
            self._closed,
            self._failed,
            self._swept,
            mean,
            len(self._shelf),
            self._hits,
            self._gate.pace.limit,
        )
