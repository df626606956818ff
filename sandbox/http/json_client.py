"""Client of longshore's HTTP servers: JSON both ways, a bearer token, and retries while the server does not answer.

``async with JsonHttpClient(url, token) as server: reply = await server.post_with_retries("/allocate", body)``.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
import orjson

from protocol.idle_connections import OWN_IDLE_S
from sandbox.http.messages import CLIENT_SPARE_S

RETRY_PAUSE_S = 0.2
BUSY_STATUSES = frozenset({429, 503})
"""Statuses of a server that is full; its Retry-After header says when to try again."""
TRANSPORT_ERRORS = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)
"""Exceptions raised when the server did not answer."""


class HttpStatusError(Exception):
    """The server replied with an error status."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float, errno: int | None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s, self.errno = status, code, retry_after_s, errno


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A server's reply, with any status."""

    status: int
    raw: bytes
    retry_after_s: float
    """Seconds from the Retry-After header; 0 without one."""

    def json(self) -> dict[str, Any]:
        """Decode the body.  Raises orjson.JSONDecodeError."""
        return cast("dict[str, Any]", orjson.loads(self.raw))


class JsonHttpClient:
    """A client of one server; an asynchronous context manager."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        request_s: float = 660.0,
        unreachable_s: float = 30.0,
        connect_s: float = 10.0,
    ) -> None:
        """``request_s``: maximum seconds for a reply to a request without a deadline; ``unreachable_s``: maximum
        seconds of retries while the server does not answer; ``connect_s``: maximum seconds for a connection."""
        self.url, self._token, self._connect_s = url.rstrip("/"), token, connect_s
        self.request_s, self.unreachable_s = request_s, unreachable_s
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=OWN_IDLE_S),
            headers=headers,
            raise_for_status=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await asyncio.shield(self._http.close())

    async def post_with_retries(
        self, path: str, body: dict[str, Any], deadline_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request that may be repeated, until the server answers or has been lost for ``unreachable_s``.

        Raises HttpStatusError and aiohttp's errors.
        """
        give_up = 0.0
        while True:
            began = time.monotonic()
            try:
                return await self.post(path, body, deadline_s)
            except TRANSPORT_ERRORS as error:
                now = time.monotonic()
                lost = began if isinstance(error, TimeoutError) else now
                give_up = give_up or lost + self.unreachable_s
                if now > give_up:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def post(self, path: str, body: dict[str, Any], deadline_s: float | None = None) -> dict[str, Any]:
        """Send one request and return the body of a success.  Raises HttpStatusError and aiohttp's errors."""
        reply = await self.exchange("POST", path, body, (deadline_s or self.request_s) + CLIENT_SPARE_S)
        try:
            value = reply.json()
        except orjson.JSONDecodeError:
            value = {}
        if reply.status == 200 and value.get("ok"):
            return value
        raise HttpStatusError(
            reply.status,
            str(value.get("code", "")),
            str(value.get("error", reply.raw[:200])),
            reply.retry_after_s,
            value.get("errno"),
        )

    async def exchange(self, method: str, path: str, body: dict[str, Any] | None, total_s: float) -> JsonReply:
        """Send one request and return the reply, with any status, within ``total_s``. Raises aiohttp's errors."""
        if self._http is None:
            raise RuntimeError("use `async with JsonHttpClient(...)`")
        headers = {"content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=self._connect_s)
        data = None if body is None else io.BytesIO(_encoded(body))
        async with self._http.request(method, self.url + path, data=data, headers=headers, timeout=timeout) as response:
            after = response.headers.get("retry-after", "")
            raw = await response.read()
            return JsonReply(response.status, raw, float(after) if after.isdigit() else 0.0)

    @asynccontextmanager
    async def open_stream(
        self, path: str, body: AsyncIterable[bytes], begin_s: float
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send a request whose body and reply go on at the same time; leaving the block ends both.

        The reply begins within ``begin_s``.  Raises aiohttp's errors, TimeoutError.
        """
        if self._http is None:
            raise RuntimeError("use `async with JsonHttpClient(...)`")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s)
        async with asyncio.timeout(begin_s):
            reply = await self._http.post(self.url + path, data=_sent_at_once(body), timeout=timeout)
        try:
            yield reply
        finally:
            reply.close()


async def _sent_at_once(body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield nothing, with which aiohttp sends the request's headers, and then the body."""
    yield b""
    async for data in body:
        yield data


def _encoded(body: dict[str, Any]) -> bytes:
    """Encode with orjson, or with json for what orjson refuses: integers above 64 bits, lone surrogates."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        return json.dumps(body).encode()
