"""Where a worker's sandboxes come from: a pool of its own on its node's Docker daemon, pool servers, or a provider that
a package adds.  Open as long as the context is; what a server still holds then ends with its lease."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from actors.provider_settings import POOL, ProviderSettings
from sandbox.pool import PoolSettings, SandboxPool
from sandbox.pool_settings import PoolStatistics
from sandbox.provider import LocalProvider, Provider, Sandbox
from sandbox.providers import added_provider
from sandbox.servers import PoolServers
from sandbox.tasks.task import Task


class Sandboxes(Provider, Protocol):
    def statistics(self) -> PoolStatistics: ...


class Counted:
    """A provider that does not count what it gives."""

    def __init__(self, provider: Provider, capacity: int) -> None:
        """``capacity``: most that will be asked of it at once."""
        self._provider, self._capacity = provider, capacity
        self._held: list[Sandbox] = []
        self._starting = self._started = self._failed = 0

    async def open(self, task: Task, deadline_s: float | None = None) -> Sandbox:
        self._starting += 1
        try:
            sandbox = await self._provider.open(task, deadline_s)
        except BaseException:
            self._failed += 1
            raise
        finally:
            self._starting -= 1
        self._started += 1
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


@asynccontextmanager
async def open_sandboxes(
    pool: PoolSettings, provider: ProviderSettings | None, *, episodes: int, acquire_s: float
) -> AsyncGenerator[Sandboxes]:
    """Of ``pool``, unless there is a ``provider``.  Raises UserError for one that is none."""
    if provider is None:
        async with SandboxPool(pool) as opened:
            yield LocalProvider(opened)
        return
    async with _others(provider, acquire_s) as given:
        yield Counted(given, episodes)


def _others(settings: ProviderSettings, acquire_s: float) -> AbstractAsyncContextManager[Provider]:
    if settings.name == POOL:
        return PoolServers(settings.urls, settings.token, acquire_s=acquire_s)
    return added_provider(settings.name, settings.options)
