"""The source of a worker's sandboxes: its own pool on its node's Docker daemon, pool servers, or a plugin's provider.

A source is open as long as its context is; sandboxes that a server still holds then end with their lease.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from actors.workers.provider_spec import ProviderSpec
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest
from sandbox.agent_programs import AgentPrograms
from sandbox.errors import SandboxStartError
from sandbox.images.store import ImageStore
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import PoolStatistics
from sandbox.providers.daytona.provider import daytona_provider
from sandbox.providers.interface import LocalProvider, LocalSandbox, Sandbox, SandboxGroup, SandboxProvider
from sandbox.providers.plugins import open_plugin_provider
from sandbox.providers.pool_servers import PoolServers
from sandbox.providers.remote import RemotePool
from sandbox.providers.settings import DAYTONA, ENVIRONMENT, POOL
from sandbox.tasks.task import Task


class EpisodeSandboxSource(Protocol):
    """Opens sandboxes for episodes and counts them."""

    async def open(self, task: Task, deadline_s: float | None = None, group: SandboxGroup | None = None) -> Sandbox:
        """Open a sandbox; see :meth:`sandbox.providers.interface.SandboxProvider.open`.  A sandbox of the group
        ``group`` starts only when there is a slot for each sandbox of the group."""
        ...

    def statistics(self) -> PoolStatistics: ...


class LocalSandboxSource:
    """A worker's own pool, which only its own episodes use."""

    def __init__(self, pool: SandboxPool) -> None:
        self._provider = LocalProvider(pool)

    @property
    def images(self) -> ImageStore:
        """The images of the pool's machine."""
        return self._provider.pool.images

    async def open(
        self, task: Task, deadline_s: float | None = None, group: SandboxGroup | None = None
    ) -> LocalSandbox:
        del group
        return await self._provider.open(task, deadline_s)

    def statistics(self) -> PoolStatistics:
        return self._provider.statistics()


class AbsentSandboxSource:
    """A source without sandboxes, for workers whose episodes run on environment services."""

    async def open(self, task: Task, deadline_s: float | None = None, group: SandboxGroup | None = None) -> Sandbox:
        del task, deadline_s, group
        raise SandboxStartError("environment services open the sandboxes of their episodes themselves")

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0)


class CountedSandboxSource:
    """Counts the sandboxes of a provider that has no statistics."""

    def __init__(self, provider: SandboxProvider, capacity: int) -> None:
        """Wrap ``provider``; ``capacity`` is the maximum number of sandboxes at once."""
        self._provider, self._capacity = provider, capacity
        self._held: list[Sandbox] = []
        self._starting = self._started = self._failed = 0

    async def open(self, task: Task, deadline_s: float | None = None, group: SandboxGroup | None = None) -> Sandbox:
        self._starting, started = self._starting + 1, 0
        try:
            if group is not None and isinstance(self._provider, RemotePool):
                sandbox = await self._provider.open(task, deadline_s, group)
            else:
                sandbox = await self._provider.open(task, deadline_s)
            started = 1
        finally:
            self._starting, self._started = self._starting - 1, self._started + started
            self._failed += 1 - started
        self._held = [*self._alive(), sandbox]
        return sandbox

    def _alive(self) -> list[Sandbox]:
        return [each for each in self._held if each.alive]

    def statistics(self) -> PoolStatistics:
        live = len(self._alive())
        closed = self._started - live
        return PoolStatistics(
            self._capacity, live, self._starting, 0, self._started, closed, self._failed, 0, 0.0, 0, 0, self._capacity
        )


def sandbox_group_of(request: RolloutRequest, provider: ProviderSpec | None) -> SandboxGroup | None:
    """Return the group with which an episode's sandbox starts; None for a repeated attempt and for evaluations."""
    if provider is None or not provider.group_slots or request.purpose != TRAIN_PURPOSE or request.attempt:
        return None
    return SandboxGroup(f"{request.run_id}/g{request.group:06d}", request.group_size)


@asynccontextmanager
async def open_sandbox_source(
    pool: PoolSettings, provider: ProviderSpec | None, *, episodes: int, acquire_s: float
) -> AsyncGenerator[EpisodeSandboxSource]:
    """Open ``pool``, or ``provider`` if it is given; sandboxes of pool servers and of Daytona have the same agent
    programs.

    Raises UserError for an unknown provider."""
    if provider is None:
        async with SandboxPool(pool) as sandboxes:
            yield LocalSandboxSource(sandboxes)
        return
    if provider.name == ENVIRONMENT:
        yield AbsentSandboxSource()
        return
    async with _open_provider(provider, acquire_s, pool.agent_programs) as opened:
        yield CountedSandboxSource(opened, episodes)


def _open_provider(
    spec: ProviderSpec, acquire_s: float, programs: AgentPrograms | None
) -> AbstractAsyncContextManager[SandboxProvider]:
    if spec.group_slots:
        return RemotePool(spec.urls[0], spec.token, acquire_s=acquire_s, programs=programs)
    if spec.name == POOL:
        return PoolServers(spec.urls, spec.token, acquire_s=acquire_s, programs=programs)
    if spec.name == DAYTONA:
        return daytona_provider(spec.options, programs=programs)
    return open_plugin_provider(spec.name, spec.options)
