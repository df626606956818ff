"""One of our servers, as its clients speak to it: JSON there and back, a token, and again while nobody answers.

``async with Caller(url, token) as server: reply = await server.ask("/allocate", body)``.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
import orjson

from sandbox.http.messages import CLIENT_SPARE_S

RETRY_PAUSE_S, _CONNECT_S = 0.2, 10.0
BUSY_STATUSES = frozenset({429, 503})
"""Come again, says such a reply, when it says."""
TRANSPORT_ERRORS = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)
"""Nobody has answered."""


class HttpStatusError(Exception):
    """A reply that is not a success."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float, errno: int | None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s, self.errno = status, code, retry_after_s, errno


class JsonHttpClient:
    def __init__(self, url: str, token: str = "", *, request_s: float = 660.0, unreachable_s: float = 30.0) -> None:
        """``request_s``: longest wait for a reply whose time is not known; ``unreachable_s``: for a server that does
        not answer at all."""
        self.url, self._token = url.rstrip("/"), token
        self.request_s, self.unreachable_s = request_s, unreachable_s
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), headers=headers, raise_for_status=False
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
        """One request that may be repeated: again while nobody answers.  Raises Refused, and what aiohttp raises."""
        give_up = time.monotonic() + self.unreachable_s
        while True:
            try:
                return await self.post(path, body, deadline_s)
            except TRANSPORT_ERRORS:
                if time.monotonic() > give_up:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def post(self, path: str, body: dict[str, Any], deadline_s: float | None = None) -> dict[str, Any]:
        """Once.  Raises as :meth:`ask` does."""
        if self._http is None:
            raise RuntimeError("use `async with Caller(...)`")
        headers = {"content-type": "application/json"}
        total_s = (deadline_s or self.request_s) + CLIENT_SPARE_S
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=_CONNECT_S)
        data = io.BytesIO(_encoded(body))
        async with self._http.post(self.url + path, data=data, headers=headers, timeout=timeout) as response:
            raw = await response.read()
            try:
                value = cast("dict[str, Any]", orjson.loads(raw))
            except orjson.JSONDecodeError:
                value = {}
            if response.status == 200 and value.get("ok"):
                return value
            after = response.headers.get("retry-after", "")
            raise HttpStatusError(
                response.status,
                str(value.get("code", "")),
                str(value.get("error", raw[:200])),
                float(after) if after.isdigit() else 0.0,
                value.get("errno"),
            )


def _encoded(body: dict[str, Any]) -> bytes:
    """orjson is fast, and refuses what a model may write: whole numbers above 64 bits, halves of surrogate pairs."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        return json.dumps(body).encode()
