"""The egress proxy: how a sandbox in network mode ``proxy`` reaches allowed hosts.

``async with EgressProxy(folder, settings) as proxy: async with proxy.opened(pid, hosts) as env: …`` listens at
127.0.0.1:3128 inside a container's network namespace until the block ends, so that each phase of a task (build, agent,
verify) has its own network while the container has none.  Requests to allowed hosts are forwarded, all others get 403
and are counted.  Files fetched over plain HTTP, or from the package index that ``env`` points pip and uv at, are
fetched once and cached for all sandboxes.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from yarl import URL

from sandbox.docker.network.network_namespace import listen_in_namespace
from sandbox.egress_proxy.cached_file import FetchFailedError
from sandbox.egress_proxy.connection import ProxyAccess, serve_connection
from sandbox.egress_proxy.download import download
from sandbox.egress_proxy.file_cache import FileCache
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.settings import PROXY_ADDRESS, EgressProxySettings
from sandbox.egress_proxy.upstream import EgressRefusedError, UpstreamClient, UpstreamError
from sandbox.errors import ImageError

_MOST_CONNECTIONS = 64
_MOST_NAMED = 1000
PAUSE_S = 0.1
"""Seconds before the next attempt to accept a connection, which the kernel queues meanwhile."""


class EgressProxyStatistics(NamedTuple):
    """Counts of a proxy at one moment."""

    open: int
    fetched: int
    """Number of files that were fetched from outside."""
    served: int
    """Number of responses that needed no fetch."""
    refused: Mapping[str, int]
    """Number of refused requests by reason."""


async def _no_confirmation() -> None:
    """Accept any process that has the PID."""


class EgressProxy:
    """The proxy of one machine's sandboxes; it caches files in ``folder``."""

    def __init__(self, folder: Path, settings: EgressProxySettings) -> None:
        self._settings = settings
        self._upstream = UpstreamClient(FileCache(folder, settings.max_bytes))
        self._tasks = asyncio.TaskGroup()
        self._listening: set[asyncio.Task[None]] = set()
        self._refused: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        await self._upstream.__aenter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace  # raise the caller's own error as it is, not in a group
        for listening in self._listening:
            listening.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self._upstream.__aexit__(None, None, None)

    @asynccontextmanager
    async def opened(
        self,
        pid: int,
        hosts: tuple[str, ...],
        *,
        everywhere: bool = False,
        service_names: Iterable[str] = (),
        confirm: Callable[[], Awaitable[None]] = _no_confirmation,
    ) -> AsyncGenerator[Mapping[str, str]]:
        """Listen in the namespace of a process on this host until the end of the block.

        ``confirm`` is that of :func:`listen_in_namespace`. Yields the variables that programs there need. Raises
        UserError, DockerEngineError.
        """
        listener = await listen_in_namespace(pid, confirm)
        allowed = AllowList(hosts, self._settings.always_allowed_hosts, everywhere)
        closed = asyncio.Event()

        def ended(listening: asyncio.Task[None]) -> None:  # also of a task that was cancelled before its first step
            self._listening.discard(listening)
            listener.close()
            closed.set()

        listening = self._tasks.create_task(
            self._listen(listener, ProxyAccess(allowed, PROXY_ADDRESS, self._note_refused))
        )
        self._listening.add(listening)
        listening.add_done_callback(ended)
        try:
            yield self._settings.environment(service_names)
        finally:
            listening.cancel()
            await asyncio.shield(closed.wait())

    async def fetch(self, url: str, hosts: tuple[str, ...], most_bytes: int, *, everywhere: bool) -> bytes:
        """Return a file of at most ``most_bytes`` as a sandbox with these hosts would get it. Raises ImageError."""
        allowed = AllowList(hosts, self._settings.always_allowed_hosts, everywhere)
        try:
            return await download(self._upstream, allowed, URL(url), most_bytes)
        except (EgressRefusedError, UpstreamError, FetchFailedError, ValueError) as error:
            raise ImageError(f"{url} cannot be fetched: {error or 'the connection ended'}") from error

    async def _listen(self, listener: socket.socket, access: ProxyAccess) -> None:
        slots = asyncio.Semaphore(_MOST_CONNECTIONS)
        connections: dict[asyncio.Task[None], socket.socket] = {}

        def left(serving: asyncio.Task[None]) -> None:
            connections.pop(serving).close()
            slots.release()

        try:
            while True:
                await slots.acquire()
                connection = await _accepted(listener)
                serving = self._tasks.create_task(self._serve(connection, access))
                connections[serving] = connection
                serving.add_done_callback(left)
        finally:
            for serving in connections:
                serving.cancel()

    async def _serve(self, connection: socket.socket, access: ProxyAccess) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            await serve_connection(reader, writer, access, self._upstream)
        except Exception as error:  # noqa: BLE001  one connection's failure is recorded and does not affect the others
            self._note_refused(f"failed: {type(error).__name__} {error}")

    def _note_refused(self, why: str) -> None:
        if why in self._refused or len(self._refused) < _MOST_NAMED:
            self._refused[why] += 1

    def statistics(self) -> EgressProxyStatistics:
        """Return the proxy's counts."""
        return EgressProxyStatistics(
            len(self._listening), self._upstream.fetched, self._upstream.served, dict(self._refused)
        )


async def _accepted(listener: socket.socket) -> socket.socket:
    """Accept the next connection; wait while this process has no free file descriptor."""
    while True:
        try:
            return (await asyncio.get_running_loop().sock_accept(listener))[0]
        except OSError:
            await asyncio.sleep(PAUSE_S)
