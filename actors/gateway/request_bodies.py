"""Receives the bodies of requests within limits: of one, of a session and of all together, each with a deadline.

A body counts with its declared length before any of it is read, and without one as it arrives, until it is parsed.
So a harness that begins many uploads, or never ends one, holds a bounded part of its worker's memory.  A compressed
body is refused, because a small one may unpack to gigabytes: neither the clients of OpenAI's and Anthropic's APIs nor
Claude Code send any, and Codex compresses for OpenAI's own service only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from actors.gateway.chat_request import GatewayRequestError
from sandbox.http.json_structure import JsonStructure, TooMuchStructureError

_MIB = 1 << 20
_MOST_MARKS = 500_000
"""Bound of a request's structure: tens of thousands of messages."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Most bytes of bodies that are being received or parsed."""

    body: int = 64 * _MIB
    session: int = 64 * _MIB
    all_sessions: int = 256 * _MIB


class RequestBodies:
    """The bodies that a gateway is receiving."""

    def __init__(self, limits: BodyLimits = BodyLimits(), deadline_s: float = 60.0) -> None:
        self._limits, self._deadline_s = limits, deadline_s
        self._held = Counter[str]()

    @asynccontextmanager
    async def receive(self, request: web.Request, session: str) -> AsyncGenerator[bytes]:
        """Give the body of a request of ``session``, and count it during the block.  Raises
        :class:`GatewayRequestError` for one that is compressed, too large or too slow, or while too much is under way.

        The server must not decompress by itself."""
        if (coding := request.headers.get("Content-Encoding", "identity").lower()) != "identity":
            raise GatewayRequestError(f"send the request's body uncompressed, not as {coding!r}", status=415)
        counted = _CountedBody(self._limits, self._held, session)
        try:
            counted.grow_to(request.content_length or 0)
            yield await self._read(request, counted)
        finally:
            self._held[session] -= counted.size
            if not self._held[session]:
                del self._held[session]

    async def _read(self, request: web.Request, counted: _CountedBody) -> bytes:
        body, structure = bytearray(), JsonStructure(_MOST_MARKS)
        try:
            async with asyncio.timeout(self._deadline_s):
                async for piece in request.content.iter_any():
                    body += piece
                    counted.grow_to(len(body))
                    structure.add(piece)
        except TooMuchStructureError as error:
            raise GatewayRequestError(str(error), status=413) from None
        except TimeoutError:
            raise GatewayRequestError(
                f"the request's body did not arrive within {self._deadline_s:g} s", status=408
            ) from None
        return bytes(body)


@dataclass(slots=True)
class _CountedBody:
    """One body, and the bytes that all bodies hold, by session."""

    limits: BodyLimits
    held: Counter[str]
    session: str
    size: int = 0

    def grow_to(self, size: int) -> None:
        """Count at least ``size`` bytes for the body.  Raises :class:`GatewayRequestError`."""
        more = max(0, size - self.size)
        if size > self.limits.body:
            raise GatewayRequestError(f"a request has at most {self.limits.body} bytes", status=413)
        if self.held[self.session] + more > self.limits.session:
            raise GatewayRequestError("this session sends too much at once: wait for its other requests", status=429)
        if self.held.total() + more > self.limits.all_sessions:
            raise GatewayRequestError("the gateway receives too much at once: try again", status=503)
        self.held[self.session] += more
        self.size += more
