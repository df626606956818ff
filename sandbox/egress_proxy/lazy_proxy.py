"""A gate that opens when somebody first asks for it, and closes with its owner.

``async with GateOnNeed(folder, settings) as gates: gate = await gates.get()``.  However many ask, there is one; where
nobody does, there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from protocol.errors import UserError
from sandbox.egress_proxy.proxy import EgressProxy, EgressProxyStatistics
from sandbox.egress_proxy.settings import EgressProxySettings


class LazyEgressProxy:
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
        """When nothing that it let out is open any more."""
        self._closing.set()
        await self._tasks.__aexit__(None, None, None)

    async def get(self) -> EgressProxy:
        """Raises UserError where it cannot keep its files."""
        if self._holder is None:
            self._holder = self._tasks.create_task(self._hold())
        await self._opened.wait()
        if self._proxy is None:
            raise UserError(self._why_not)
        return self._proxy

    async def _hold(self) -> None:
        """In one task from its opening to its end, whichever session was the first to need it."""
        try:
            proxy = EgressProxy(self._folder, self._settings)
        except OSError as error:
            self._why_not = f"network `proxy` keeps what it fetches in {self._folder}, and that cannot be made: {error}"
            self._opened.set()
            return
        async with proxy:
            self._proxy = proxy
            self._opened.set()
            await self._closing.wait()

    def environment(self, service_names: Iterable[str] = ()) -> Mapping[str, str]:
        """See :meth:`GateSettings.environment`."""
        return self._settings.environment(service_names)

    def statistics(self) -> EgressProxyStatistics | None:
        """None where nobody has needed it."""
        return self._proxy.statistics() if self._proxy is not None else None
