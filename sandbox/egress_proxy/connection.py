"""One client's connection to the proxy: HTTP/1.1 requests one after the other, or a tunnel.

h11 parses and writes the protocol; this module decides what to do with a request. Every wait for the client has a
deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from dataclasses import dataclass

import h11
from yarl import URL

from sandbox.docker.network.proxy_address import PROXY_SAYS
from sandbox.egress_proxy import index_links
from sandbox.egress_proxy.cached_file import FetchFailedError, ResponseHead
from sandbox.egress_proxy.reading_allowance import ReadingAllowance
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import (
    EgressRefusedError,
    UpstreamClient,
    UpstreamError,
    UpstreamRequest,
    open_tunnel,
    vet_host,
)
from sandbox.tasks.allowed_hosts import split_authority

_CLIENT_S = 120.0
_TUNNEL_S = 600.0
_CHUNK_BYTES = 64 << 10
_TURN_EVENTS = 64
"""Most events that are parsed of one connection before others have their turn: 64 KiB of one-byte chunks are 11,000."""
_REASON_CHARACTERS = 200


@dataclass(slots=True)
class ProxyAccess:
    """Hosts that one sandbox may reach, and the counter of its refused requests."""

    allowed: AllowList
    address: str
    """``http://host:port`` of the proxy as the sandbox sees it."""
    on_refused: Callable[[str], None]


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, access: ProxyAccess, upstream: UpstreamClient
) -> None:
    """Serve a connection until the client or an error ends it. Raises nothing but cancellation."""
    try:
        await _Connection(reader, writer, access, upstream).run()
    except (OSError, TimeoutError, h11.ProtocolError, FetchFailedError, UpstreamError):
        return  # too late for a reply: the client sees its connection end
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


class _Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, access: ProxyAccess, upstream: UpstreamClient
    ) -> None:
        self._reader, self._writer, self._access, self._upstream = reader, writer, access, upstream
        self._http = h11.Connection(h11.SERVER)
        self._reading = ReadingAllowance()
        self._events = 0

    async def run(self) -> None:
        while True:
            try:
                event = await self._next()
            except h11.RemoteProtocolError as error:
                await self._reply(error.error_status_hint, f"this is not a valid request ({error})")
                return
            if not isinstance(event, h11.Request):
                return
            try:
                if event.method == b"CONNECT":
                    await self._tunnel(event.target.decode("ascii"))
                    return
                await self._answer(event)
            except EgressRefusedError as error:
                self._access.on_refused(str(error))
                await self._reply(403, str(error))
            except UpstreamError as error:
                await self._reply(502, str(error))
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        self._events += 1
        if self._events % _TURN_EVENTS == 0:
            await asyncio.sleep(0)
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event  # pyright: ignore[reportReturnType]  the sentinel that is left is PAUSED
            async with asyncio.timeout(_CLIENT_S):
                self._http.receive_data(await self._reader.read(_CHUNK_BYTES))

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._reading.wait(self._writer.drain(), len(data))

    async def _reply(self, status: int, text: str) -> None:
        """Send a reply of the proxy itself, and then end the connection."""
        if self._http.our_state is not h11.SEND_RESPONSE and self._http.our_state is not h11.IDLE:
            raise UpstreamError(text)
        body = f"{PROXY_SAYS}{text}\n".encode()
        reason = re.sub(r"[^ -~]", "?", text)[:_REASON_CHARACTERS]  # all that a client shows of a refused CONNECT
        headers = [("Content-Length", str(len(body))), ("Content-Type", "text/plain"), ("Connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers, reason=reason))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _answer(self, event: h11.Request) -> None:
        target = event.target.decode("ascii")
        page_url = index_links.proxied_url(target)
        url = page_url or URL(target, encoded=True)
        if url.scheme not in ("http", "https") or not url.host:
            raise EgressRefusedError(f"{target!r} names no server: this is a proxy")
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
        dropped = {"host", "accept-encoding"} if page_url else {"host"}  # a page is read on its way
        headers = tuple((name, value) for name, value in headers if name.lower() not in dropped)
        bodiless = event.method in (b"GET", b"HEAD")
        request = UpstreamRequest(event.method.decode("ascii"), url, headers, None if bodiless else self._body())
        if bodiless:
            await self._drain()
        async with self._upstream.open_response(self._access.allowed, request) as (head, body):
            await self._give(head, body, as_page=page_url is not None)

    async def _body(self) -> AsyncGenerator[bytes]:
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                return

    async def _drain(self) -> None:
        async for _ in self._body():
            continue

    async def _give(self, head: ResponseHead, body: AsyncIterable[bytes], *, as_page: bool) -> None:
        headers = head.headers
        if as_page:
            kind = next((value for name, value in headers if name.lower() == "content-type"), "")
            proxy_url = self._access.address
            headers = tuple(
                (name, index_links.proxied_path(proxy_url, value) if name.lower() == "location" else value)
                for name, value in headers
            )
            if index_links.is_index_page(kind):
                headers = tuple(each for each in headers if each[0].lower() not in ("content-length", "etag"))
                body = index_links.rewrite_links(body, proxy_url)
        await self._send(h11.Response(status_code=head.status, headers=list(headers)))
        async for data in body:
            await self._send(h11.Data(data=data))
        await self._send(h11.EndOfMessage())

    async def _tunnel(self, authority: str) -> None:
        where = split_authority(authority, 443)
        if where is None:
            raise EgressRefusedError(f"{authority!r} is not a host and port")
        vetted = await vet_host(self._access.allowed, *where)
        far_reader, far_writer = await open_tunnel(vetted)
        try:
            await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
            early, _ = self._http.trailing_data
            far_writer.write(early)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(self._reader, far_writer))
                both.create_task(_pump(far_reader, self._writer))
        finally:
            far_writer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy bytes one way until that side ends or fails; the other way continues."""
    with contextlib.suppress(OSError, TimeoutError):
        while True:
            async with asyncio.timeout(_TUNNEL_S):
                data = await source.read(_CHUNK_BYTES)
                if not data:
                    break
                sink.write(data)
                await sink.drain()
        sink.write_eof()
