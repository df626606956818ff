"""Starts a pool's sandboxes: gives each a slot, starts it when the machine has room, and keeps some warm.

Warm sandboxes have been started and checked, and wait for a task of their kind (:mod:`sandbox.pool.warm_sandboxes`).
They count within the capacity and are ended for a task that needs the slot. How many sandboxes start at once follows
from how long starts take (:mod:`sandbox.pool.start_limiter`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Self

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError
from sandbox.pool.settings import PoolSettings
from sandbox.pool.start_limiter import StartConcurrencyLimit, StartLimiter
from sandbox.pool.warm_sandboxes import ContainerKind, WarmSandbox, WarmSandboxes
from sandbox.session.init_connection import init_requests
from sandbox.session.sandbox_session import SandboxSession, SessionLimits

_CHECK_S = 5.0
"""Seconds after which a warm sandbox that does not answer is not handed out."""


class WarmPool:
    """Slots and warm sandboxes of a pool; leaving its ``async with`` block ends the warm sandboxes."""

    def __init__(
        self,
        engine: DockerEngine,
        settings: PoolSettings,
        spec: Callable[[ContainerKind, float], ContainerSpec],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``spec(kind, lifetime_s)`` returns the specification of a container that lives for at most ``lifetime_s``
        seconds."""
        self._engine, self._settings, self._spec, self._now = engine, settings, spec, now
        self._slots = asyncio.Semaphore(settings.capacity)
        first = settings.start_concurrency
        most, least = max(first, settings.start_concurrency_max), min(first, settings.start_concurrency_min)
        self.start_limiter = StartLimiter(StartConcurrencyLimit(first, most, least))
        self._warm = WarmSandboxes(settings.warm_per_kind, settings.warm_max_age_s, settings.warm_demand_window_s)
        self.on_warm_started: Callable[[SandboxSession], None] = lambda _: None
        """Called with each sandbox that becomes warm."""
        self._tasks = asyncio.TaskGroup()
        self._fills: set[asyncio.Task[None]] = set()
        self._ending = False
        self.waiting = self.starting = self.started = self.failed = self.hits = 0
        self.start_ms = 0.0

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        for fill in self._fills:
            fill.cancel()
        await self._tasks.__aexit__(None, None, None)
        async with asyncio.TaskGroup() as group:
            while (session := self._warm.pop_oldest()) is not None:
                group.create_task(self.discard(session))

    @property
    def is_full(self) -> bool:
        """True if every slot is taken."""
        return self._slots.locked()

    @property
    def queued(self) -> int:
        """Number of requests that wait for a slot or for their start."""
        return self.waiting + self.start_limiter.queued

    @property
    def filling(self) -> int:
        """Number of warm sandboxes that are being started."""
        return len(self._fills)

    def __len__(self) -> int:
        """Number of warm sandboxes."""
        return len(self._warm)

    def __iter__(self) -> Iterator[SandboxSession]:
        """Iterate over the warm sandboxes."""
        return iter(self._warm)

    async def take_warm(self, kind: ContainerKind) -> SandboxSession | None:
        """Return a warm sandbox that answers, with its slot; None when there is none."""
        while (session := self._warm.pop_of_kind(kind)) is not None:
            try:
                await session.wait_acknowledged(session.request(self._ping_frame), _CHECK_S)
            except (TimeoutError, SandboxLost, SandboxDestroyed):
                await self.discard(session)
            except BaseException:
                await self.discard(session)
                raise
            else:
                self.hits += 1
                return session
        return None

    async def acquire_slot(self) -> None:
        """Wait for a slot; a warm sandbox is ended for it if needed."""
        if self._slots.locked() and (spare := self._warm.pop_oldest()) is not None:
            await self.discard(spare)
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1

    def release_slot(self) -> None:
        """Give a slot back."""
        self._slots.release()

    async def discard(self, session: SandboxSession) -> None:
        """End a sandbox and free its slot, even if the daemon does not answer: the container ends at its own
        deadline."""
        try:
            await session.close()
        finally:
            self.release_slot()

    async def start_sandbox(self, kind: ContainerKind, lifetime_s: float, *, urgent: bool = True) -> SandboxSession:
        """Start a sandbox in a slot that was acquired. Raises SandboxStartError."""
        limits = SessionLimits(min(self._settings.containers.heartbeat_timeout_s, lifetime_s), lifetime_s)
        try:
            async with self.start_limiter.start_slot(urgent=urgent):
                began = time.perf_counter()
                self.starting += 1
                try:
                    async with asyncio.timeout(self._settings.containers.start_timeout_s):
                        spec = self._spec(kind, lifetime_s)
                        session = await SandboxSession.start(self._engine, spec, kind.workdir, limits)
                finally:
                    self.starting -= 1
        except TimeoutError as error:
            self.failed += 1
            raise SandboxStartError(
                f"no sandbox started within start_timeout_s = {self._settings.containers.start_timeout_s:g}: lower "
                "start_concurrency, or look at the daemon's log"
            ) from error
        except SandboxStartError:
            self.failed += 1
            raise
        self.start_ms += (time.perf_counter() - began) * 1000
        self.started += 1
        return session

    def refill(self, kind: ContainerKind, wanted: int | None = None) -> None:
        """Start the missing warm sandboxes of this kind, if no request waits for the room."""
        self._warm.record_demand(kind, self._now())
        for _ in range(self._warm.count_missing(kind, wanted)):
            self._begin_fill(kind)

    async def wait_until_filled(self) -> None:
        """Wait until all starts of warm sandboxes in progress have ended."""
        for fill in tuple(self._fills):
            await asyncio.shield(fill)

    def maintain(self) -> None:
        """Extend the warm sandboxes, and replace those that have died or become too old.

        Does not wait, so that a sandbox that ends slowly does not delay the others.
        """
        for lost in self._warm.pop_unfit(self._now()):
            self._warm.count_start(lost.kind, +1)
            self._tasks.create_task(self._replace(lost))
        for session in self._warm:
            session.extend(self._settings.containers.heartbeat_timeout_s)

    async def _replace(self, lost: WarmSandbox) -> None:
        try:
            await self.discard(lost.session)
        finally:
            self._warm.count_start(lost.kind, -1)
        if not self._ending and self._warm.is_wanted(lost.kind, self._now()):
            self._begin_fill(lost.kind)

    def _begin_fill(self, kind: ContainerKind) -> None:
        self._warm.count_start(kind, +1)
        fill = self._tasks.create_task(self._fill(kind))
        self._fills.add(fill)
        fill.add_done_callback(self._fills.discard)

    async def _fill(self, kind: ContainerKind) -> None:
        try:
            if self.waiting or self._slots.locked():
                return
            await self._slots.acquire()
            try:
                lifetime_s = self._settings.containers.max_lifetime_s + self._settings.warm_max_age_s
                session = await self.start_sandbox(kind, lifetime_s, urgent=False)
            except BaseException as error:
                self.release_slot()
                if isinstance(error, SandboxStartError):  # counted; the next task of this kind reports the reason
                    return
                raise
            if self.waiting:
                await self.discard(session)
            else:
                self.on_warm_started(session)
                self._warm.add(kind, session, self._now())
        finally:
            self._warm.count_start(kind, -1)

    def _ping_frame(self, request: int) -> bytes:
        """Build a frame whose answer shows that PID 1 is alive."""
        return init_requests.extend_frame(request, round(self._settings.containers.heartbeat_timeout_s * 1000))
