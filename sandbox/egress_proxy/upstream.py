"""The proxy's own requests: to allowed hosts at vetted addresses, and only once for what may be cached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from protocol.idle_connections import FOREIGN_IDLE_S
from sandbox.egress_proxy.cached_file import CachedFile, FetchFailedError, Headers, ResponseHead
from sandbox.egress_proxy.file_cache import FileCache, cache_lifetime_s
from sandbox.egress_proxy.own_addresses import is_own_address
from sandbox.egress_proxy.rules import AllowList

_CONNECT_S = 20.0
_SILENCE_S = 60.0
_CHUNK_BYTES = 256 << 10
MAX_PINNED_NAMES = 4096
"""Maximum number of names whose vetted addresses are remembered, far more than connections being made at once."""
_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
_VARYING = frozenset({"accept"})
"""Request headers that a cached response may depend on."""
_PERSONAL = frozenset({"authorization", "cookie", "range"})
"""Request headers with which a request is not served from the cache."""


class EgressRefusedError(Exception):
    """The request is not allowed; the message gives the reason."""


class UpstreamError(Exception):
    """The upstream server cannot be reached, or closed the connection."""


class VettedHost(NamedTuple):
    """A host that may be reached, and its allowed addresses."""

    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to forward."""

    method: str
    url: URL
    headers: Headers
    body: AsyncIterable[bytes] | None = None


async def vet_host(allowed: AllowList, host: str, port: int) -> VettedHost:
    """Check and resolve a host. Raises EgressRefusedError, UpstreamError."""
    if not allowed.allows(host, port) and not allowed.may_allow_address(host, port):
        raise EgressRefusedError(_refusal(allowed, host, port))
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        raise UpstreamError(f"{host} cannot be resolved: {error}") from error
    addresses = tuple(dict.fromkeys(str(each[4][0]) for each in found))
    refused = {
        each: allowed.explain_refused_address(host, port, each, is_own=is_own_address(each)) for each in addresses
    }
    good = tuple(each for each, why in refused.items() if not why)
    if not good:
        why = "; ".join(f"{each}, {why}" for each, why in refused.items())
        raise EgressRefusedError(f"{host} leads to {why}: only sandbox.allow_hosts or --allow-host may allow it")
    return VettedHost(host, port, good)


def _refusal(allowed: AllowList, host: str, port: int) -> str:
    if ports := sorted(allowed.ports(host)):
        return f"{host}:{port} is refused for its port: this task allows {host} at {' and '.join(map(str, ports))}"
    return f"{host}:{port} is not among the hosts that this task allows"


async def open_tunnel(vetted: VettedHost) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a vetted host. Raises UpstreamError."""
    problem: Exception | None = None
    for address in vetted.addresses:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(address, vetted.port)
        except (OSError, TimeoutError) as error:
            problem = error
    raise UpstreamError(f"{vetted.host}:{vetted.port} cannot be reached: {problem}")


class PinnedResolver(AbstractResolver):
    """Resolves names to their vetted addresses, so that a name cannot lead elsewhere a moment later.

    A pin is for the connection that is about to be made; only the latest names are remembered, however many names
    agents invent.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[str, ...]] = {}

    def pin(self, vetted: VettedHost) -> None:
        """Remember a host's vetted addresses."""
        self._known.pop((vetted.host, vetted.port), None)
        self._known[vetted.host, vetted.port] = vetted.addresses
        if len(self._known) > MAX_PINNED_NAMES:
            del self._known[next(iter(self._known))]

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._known.get((host, port), ())
        ]

    def __len__(self) -> int:
        """Number of pinned names."""
        return len(self._known)

    async def close(self) -> None:
        self._known.clear()


class UpstreamClient:
    """Sends the proxy's requests: ``async with UpstreamClient(cache) as upstream``."""

    def __init__(self, cache: FileCache) -> None:
        self._cache = cache
        self._pinned = PinnedResolver()
        self._session: aiohttp.ClientSession | None = None
        self._fetching: dict[str, asyncio.Lock] = {}
        self._tasks = asyncio.TaskGroup()
        self.fetched = self.served = 0

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
        connector = aiohttp.TCPConnector(
            resolver=self._pinned,
            use_dns_cache=False,
            limit=0,  # each sandbox is bounded in its connections to the proxy: none waits for what others hold
            keepalive_timeout=FOREIGN_IDLE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
        await self._tasks.__aexit__(None, None, None)

    @asynccontextmanager
    async def open_response(
        self, allowed: AllowList, request: UpstreamRequest
    ) -> AsyncGenerator[tuple[ResponseHead, AsyncIterable[bytes]]]:
        """Yield a response from the cache, through it, or for this client alone.

        Raises EgressRefusedError, UpstreamError, FetchFailedError.
        """
        vetted = await vet_host(allowed, request.url.host or "", request.url.port or 80)
        if request.method != "GET" or {name.lower() for name, _ in request.headers} & _PERSONAL:
            response = await self._send(vetted, request)
        else:
            found = await self._kept(vetted, request)
            if isinstance(found, CachedFile):
                async with found.open_reader() as body:
                    yield found.head, body
                return
            response = found
        try:
            yield response_head(response), _chunks(response)
        finally:
            response.close()

    async def _kept(self, vetted: VettedHost, request: UpstreamRequest) -> CachedFile | aiohttp.ClientResponse:
        """Return a cached file, complete or being fetched; or a response that must not be kept."""
        varying = tuple((name, value) for name, value in request.headers if name.lower() in _VARYING)
        key = f"{request.url} {varying}"
        lock = self._fetching.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                entry = self._cache.find(key)
                if entry is not None:
                    self.served += 1
                    return entry
                impersonal = UpstreamRequest("GET", request.url, (*varying, ("Accept-Encoding", "identity")))
                response = await self._send(vetted, impersonal)
                head = response_head(response)
                lifetime = cache_lifetime_s(request.url.path, head)
                if not lifetime or not self._cache.may_keep(head):
                    return response
                entry = self._cache.begin(key, head, lifetime)
                self._tasks.create_task(self._fill(key, entry, response))
                self.fetched += 1
                return entry
        finally:
            if not lock.locked():
                self._fetching.pop(key, None)

    async def _fill(self, key: str, entry: CachedFile, response: aiohttp.ClientResponse) -> None:
        """Fill the entry; see :meth:`FileCache.fill`. The file tells its readers of a failure."""
        try:
            await self._cache.fill(key, entry, _chunks(response))
        except (UpstreamError, OSError, FetchFailedError):
            return
        finally:
            response.close()

    async def _send(self, vetted: VettedHost, request: UpstreamRequest) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("use `async with UpstreamClient(...)`")
        self._pinned.pin(vetted)
        headers = [(name, value) for name, value in request.headers if name.lower() not in _HOP]
        try:
            return await self._session.request(
                request.method,
                request.url,
                headers=headers,
                data=request.body,
                allow_redirects=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UpstreamError(f"{vetted.host}: {type(error).__name__} {error}") from error


def response_head(response: aiohttp.ClientResponse) -> ResponseHead:
    """Return the response's head without the headers of one connection."""
    kept = [(name, value) for name, value in response.headers.items() if name.lower() not in _HOP]
    return ResponseHead(response.status, tuple(kept))


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    try:
        async for data in response.content.iter_chunked(_CHUNK_BYTES):
            yield data
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UpstreamError(f"{response.url.host}: {type(error).__name__} {error}") from error
