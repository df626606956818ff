"""An egress proxy that starts when it is first needed, and ends with its owner.

``async with LazyEgressProxy(folder, settings) as lazy: proxy = await lazy.get()``. There is at most one, and none if
nothing needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from protocol.errors import UserError
from sandbox.egress_proxy.proxy import EgressProxy, EgressProxyStatistics
from sandbox.egress_proxy.rules import find_refused_hosts
from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.errors import TaskFault
from sandbox.tasks.task_network import TaskNetwork


class LazyEgressProxy:
    """The proxy of one machine's sandboxes."""

    def __init__(self, folder: Path, settings: EgressProxySettings) -> None:
        self._folder, self._settings = folder, settings
        self._tasks = asyncio.TaskGroup()
        self._holder: asyncio.Task[None] | None = None
        self._opened, self._closing = asyncio.Event(), asyncio.Event()
        self._proxy: EgressProxy | None = None
        self._why_not = ""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until everything that the proxy opened is closed."""
        self._closing.set()
        await self._tasks.__aexit__(None, None, None)

    async def get(self) -> EgressProxy:
        """Return the proxy. Raises UserError where it cannot store its files."""
        if self._holder is None:
            self._holder = self._tasks.create_task(self._hold())
        await self._opened.wait()
        if self._proxy is None:
            raise UserError(self._why_not)
        return self._proxy

    async def _hold(self) -> None:
        """Run the proxy in one task from its start to its end, independent of the session that needed it first."""
        try:
            proxy = EgressProxy(self._folder, self._settings)
        except OSError as error:
            self._why_not = f"network `proxy` needs the folder {self._folder}, which cannot be created: {error}"
            self._opened.set()
            return
        async with proxy:
            self._proxy = proxy
            self._opened.set()
            await self._closing.wait()

    def check_hosts(self, network: TaskNetwork) -> None:
        """Raise TaskFault if only the operator may allow one of a task's hosts, and has not named it."""
        for what, why in find_refused_hosts(network, self._settings.always_allowed_hosts):
            raise TaskFault(f"{what}: {why}")

    def environment(self, service_names: Iterable[str] = ()) -> Mapping[str, str]:
        """See :meth:`EgressProxySettings.environment`."""
        return self._settings.environment(service_names)

    def statistics(self) -> EgressProxyStatistics | None:
        """Return the proxy's counts; None if it has not been started."""
        return self._proxy.statistics() if self._proxy is not None else None
