"""The gateway: one HTTP server, on loopback unless another local address is given, and its open sessions.

In ``async with Gateway(tokenizer, generate, model="policy") as gateway``, the block ``with
gateway.open_session(limits, sampling) as session`` gives a harness ``gateway.url`` and ``gateway.api_key(session)``; at
its end calls of the session are refused.  At the end of the gateway what is under way is cancelled.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Self

import msgspec

from actors.agents.call_format import CallFormat
from actors.agents.hermes import HERMES
from actors.engines.messages import GenerateReply, StreamingGenerateFunction
from actors.engines.sampling import EpisodeSampling
from actors.gateway.app import create_app
from actors.gateway.chat_request import ChatTool, GatewayRequestError
from actors.gateway.session import GatewaySession, GatewaySessionLimits, OnReply
from actors.gateway.session_keys import SessionKeys
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_template import Tokenizer
from protocol.trajectory import ASIDES, ReplyRole
from sandbox.http.aiohttp_connections import LimitedSite, application_runner
from sandbox.http.connections import OpenConnections

_SECRET_BYTES = 32
_TOOL_LISTS = 64
"""Number of cached tool lists."""
_CACHED_BYTES = 256 << 10
"""Maximum size of a tool list that is cached; those of agents' programs have up to about 100 KiB."""


def _ignore_reply(turn: int, text: str, reply: GenerateReply) -> None:
    """Ignore a reply."""


class Gateway:
    """``model`` is the listed name of the policy; a request may name any.  A started stream is never silent for longer
    than ``quiet_s``.  The server listens on ``host``; ``thinking`` is passed to the chat template, ``calls`` is the
    format in which the policy calls tools."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        generate: StreamingGenerateFunction,
        *,
        model: str,
        quiet_s: float = 10.0,
        host: str = "127.0.0.1",
        thinking: bool | None = None,
        calls: CallFormat = HERMES,
    ) -> None:
        self.model, self.created, self.quiet_s = model, int(time.time()), quiet_s
        self._generate, self._host, self._calls = generate, host, calls
        self._keys = SessionKeys(secrets.token_bytes(_SECRET_BYTES))
        self._sessions: dict[str, GatewaySession] = {}
        self._connections = OpenConnections()
        self._runner = application_runner(create_app(self))

        @lru_cache(_TOOL_LISTS)
        def chat_with(schemas: bytes) -> ChatFormat:
            tools = msgspec.json.decode(schemas, type=list[dict[str, object]])
            return ChatFormat(tokenizer, tools=tools or None, thinking=thinking)

        self._chat_with = chat_with

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.create_server((self._host, 0), family=family, backlog=1024)
        await LimitedSite(self._runner, listening, self._connections).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Base URL; OpenAI's clients append ``/v1``, Anthropic's use it as it is."""
        host, port = self._runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def api_key(self, session: GatewaySession) -> str:
        """Return the API key of ``session``."""
        return self._keys.create_key(session.name)

    @contextmanager
    def open_session(
        self,
        limits: GatewaySessionLimits,
        sampling: EpisodeSampling,
        on_reply: OnReply = _ignore_reply,
        clock: Callable[[], float] = time.monotonic,
        untrained: frozenset[ReplyRole] = ASIDES,
    ) -> Generator[GatewaySession]:
        """Open a session during the block, named by ``sampling.session``, which must be unique.  Replies of the roles
        ``untrained`` have no loss."""
        name = sampling.session
        if name in self._sessions:
            raise ValueError(f"session {name} is open")
        session = self._sessions[name] = GatewaySession(
            limits,
            sampling,
            self._generate,
            self._chat_for,
            calls=self._calls,
            untrained=untrained,
            on_reply=on_reply,
            clock=clock,
        )
        try:
            yield session
        finally:
            session.close()
            del self._sessions[name]

    @asynccontextmanager
    async def listen_on(self, listening: socket.socket, client: str) -> AsyncGenerator[None]:
        """Also listen on the socket ``listening`` during the block, and close it at the end.  Its connections count as
        those of ``client``, which alone can reach it."""
        site = LimitedSite(self._runner, listening, self._connections, client)
        await site.start()
        try:
            yield
        finally:
            await site.stop()

    def authenticate(self, key: str) -> GatewaySession:
        """Return the session of an API key.  Raises :class:`GatewayRequestError`."""
        name = self._keys.verify_key(key)
        if name is None:
            raise GatewayRequestError(
                "this API key belongs to no session of this run", status=401, code="invalid_api_key"
            )
        if (session := self._sessions.get(name)) is None:
            raise GatewayRequestError(f"session {name} is not open: its episode is over", status=403)
        return session

    def _chat_for(self, tools: Sequence[ChatTool]) -> ChatFormat:
        """Return the chat format with ``tools``.  Raises UserError if the model's template does not support tools."""
        schemas = msgspec.json.encode([tool.schema for tool in tools])
        chat_with = self._chat_with if len(schemas) <= _CACHED_BYTES else self._chat_with.__wrapped__
        return chat_with(schemas)
