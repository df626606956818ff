"""Relays requests of a harness in a sandbox to a model at a URL and records the replies.

A harness gets a base URL on its sandbox's loopback and a key of its attempt; the endpoint's address and key stay
outside the sandbox.  Requests of OpenAI's or Anthropic's API pass unchanged except for the model, the temperature and,
if present, the seed, which are set to the evaluation's.  Replies pass unchanged; their text, calls and token counts are
read, as far as the endpoint reports them.  Titles, checks and retries are told apart from the agent's work.

How a harness handles a refusal is up to the harness.  If the last request failed because the endpoint was unreachable
or refused it, the attempt is an infrastructure failure (:attr:`RelaySession.last_error`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from aiohttp import web

from actors.engines.messages import EngineUnavailable
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.exchanges import WorkConversation
from actors.gateway.request_bodies import RequestBodies
from actors.gateway.session_keys import SessionKeys
from actors.rewards.episode_result import ModelTurn
from actors.rollout.chat_policy import ChatRefusedError
from launch.evaluation.solvers.relayed_conversation import RelayedConversation, RelayedRequest
from launch.evaluation.solvers.relayed_replies import RelayedReply
from protocol.errors import InfraError
from protocol.idle_connections import FOREIGN_IDLE_S
from protocol.trajectory import EpisodeStatus, Segment
from sandbox.docker.network.container_sockets import listen_in_container
from sandbox.http.aiohttp_connections import LimitedSite, application_runner, serving
from sandbox.http.connections import OpenConnections
from sandbox.session.sandbox_session import SandboxSession

_MOST_BYTES = 64 << 20
_ERROR_CHARS = 300
_PASSED_HEADERS = ("Content-Type", "anthropic-version", "anthropic-beta", "Accept")
"""Request headers that are forwarded."""
_BAD_GATEWAY = 502
_RELAY_ERRORS = {401, 403, 404, 429}
"""Statuses that are due to the evaluation's settings or the endpoint, not to the harness."""


OnReply = Callable[[int, RelayedReply, float], None]
"""Callback for each reply: its number, the parsed reply, and the milliseconds from request to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    url: str
    """Base URL as in OpenAI's clients, usually ending in ``/v1``."""
    model: str
    key: str
    temperature: float
    max_replies: int
    deadline_s: float
    """Seconds that one reply may take."""


@dataclass(slots=True)
class RelaySession:
    """Session of one attempt (:class:`actors.rollout.harness.HarnessSession`)."""

    name: str
    seed: int
    max_replies: int
    on_reply: OnReply
    clock: Callable[[], float] = time.monotonic
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    limit: EpisodeStatus | None = None
    last_error: InfraError | None = None
    ended: bool = False
    conversation: RelayedConversation = field(default_factory=RelayedConversation)
    _pending: int = 0
    _waited_s: float = 0.0
    _since: float = 0.0

    def all_turns(self) -> Sequence[ModelTurn]:
        return self.conversation.all_turns

    def turns(self) -> Sequence[ModelTurn]:
        """Return the turns of the agent's work."""
        return self.conversation.turns

    def segments(self) -> Sequence[Segment]:
        """Return none: token ids are unknown."""
        return ()

    @property
    def last_content(self) -> str:
        return turns[-1].text if (turns := self.turns()) else ""

    @property
    def waited_s(self) -> float:
        return self._waited_s + (self.clock() - self._since if self._pending else 0.0)

    @property
    def is_full(self) -> bool:
        return len(self.all_turns()) + self._pending >= self.max_replies

    @property
    def work(self) -> WorkConversation:
        return self.conversation.work

    def begin_step(self) -> None:
        self.conversation.step += 1
        self.ended = False

    def close(self) -> None:
        self.ended = True

    @contextmanager
    def track_call(self) -> Generator[None]:
        """Count a call as pending."""
        if not self._pending:
            self._since = self.clock()
        self._pending += 1
        try:
            yield
        finally:
            self._waited_s = self.waited_s
            self._since = self.clock()
            self._pending -= 1

    def record_failure(self, url: str, error: Exception) -> str:
        """Record that a call failed; return why."""
        why = f"{url}: {str(error) or 'no answer in time'}"
        self.last_error = EngineUnavailable(why)
        return why

    def record_reply(self, request: RelayedRequest, reply: RelayedReply, ms: float) -> None:
        self.limit = self.last_error = None
        self.on_reply(len(self.all_turns()), reply, ms)
        self.prompt_tokens += reply.prompt_tokens
        self.sampled_tokens += reply.sampled_tokens
        self.conversation.add_reply(request, reply)


class ApiRelay:
    """``async with ApiRelay(settings) as relay: with relay.open_session(…) as session: async with
    relay.listen_in_sandbox(…, session) as key:`` and a harness may send requests."""

    def __init__(self, settings: RelaySettings) -> None:
        self.settings = settings
        self._keys = SessionKeys(secrets.token_bytes(32))
        self._open: dict[str, RelaySession] = {}
        self._bodies, self._connections = RequestBodies(), OpenConnections()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle_request)
        self._runner = application_runner(app)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        self._upstream = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=FOREIGN_IDLE_S), trust_env=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._upstream.close()

    @contextmanager
    def open_session(self, name: str, seed: int, on_reply: OnReply) -> Generator[RelaySession]:
        """Open a session under a name that no open session has."""
        session = self._open[name] = RelaySession(name, seed, self.settings.max_replies, on_reply)
        try:
            yield session
        finally:
            session.close()
            del self._open[name]

    @asynccontextmanager
    async def listen_in_sandbox(self, sandbox: SandboxSession, port: int, session: RelaySession) -> AsyncGenerator[str]:
        """Listen on ``port`` of the sandbox's loopback; yield the key that the harness of ``session`` must send."""
        listening = await listen_in_container(sandbox.engine, sandbox.container, port)
        site = LimitedSite(self._runner, listening, self._connections, session.name)
        await site.start()
        try:
            yield self._keys.create_key(session.name)
        finally:
            await site.stop()

    async def _handle_request(self, request: web.Request) -> web.StreamResponse:
        session = self._session_of(request)
        if session is None:
            return _error_response(401, "this API key belongs to no running attempt")
        counts = request.method == "POST" and not request.path.endswith("/count_tokens")
        if counts and session.is_full:
            session.limit = EpisodeStatus.TURN_LIMIT
            return _error_response(429, f"the session has had its {session.max_replies} replies")
        try:
            with serving(request), session.track_call():
                async with self._bodies.receive(request, session.name) as body:
                    sent = self._rewrite_body(body, session) if body else None
                return await self._forward(request, sent, session, counts=counts)
        except GatewayRequestError as refused:
            return _error_response(refused.status, str(refused))

    def _session_of(self, request: web.Request) -> RelaySession | None:
        key = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        session = self._open.get(self._keys.verify_key(key) or "")
        return session if session is not None and not session.ended else None

    async def _forward(
        self, request: web.Request, body: bytes | None, session: RelaySession, *, counts: bool
    ) -> web.StreamResponse:
        settings = self.settings
        headers = {"Content-Type": "application/json"} if body else {}
        headers |= {name: value for name in _PASSED_HEADERS if (value := request.headers.get(name))}
        if settings.key:
            headers |= {"Authorization": f"Bearer {settings.key}", "x-api-key": settings.key}
        path = request.path.removeprefix("/v1").lstrip("/")
        url = f"{settings.url}/{path}"
        read = session.conversation.open_request(path, body or b"") if counts else None
        limit, begun = aiohttp.ClientTimeout(total=settings.deadline_s), session.clock()
        try:
            async with self._upstream.request(request.method, url, data=body, headers=headers, timeout=limit) as answer:
                return await _stream_answer(request, answer, session, begun, read)
        except (aiohttp.ClientError, TimeoutError) as error:
            return _error_response(_BAD_GATEWAY, session.record_failure(settings.url, error))

    def _rewrite_body(self, body: bytes, session: RelaySession) -> bytes:
        """Return the request with the evaluation's settings; a body that is no JSON object passes unchanged."""
        try:
            fields = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return body
        if not isinstance(fields, dict):
            return body
        ours = {"model": self.settings.model, "temperature": self.settings.temperature}
        seeded = {"seed": session.seed + len(session.all_turns())} if "seed" in fields else {}
        return msgspec.json.encode({**fields, **ours, **seeded})


async def _stream_answer(
    request: web.Request,
    answer: aiohttp.ClientResponse,
    session: RelaySession,
    begun: float,
    read: RelayedRequest | None,
) -> web.StreamResponse:
    """Forward a reply as it arrives; it counts if ``read`` is given, also if the harness hangs up at its end.
    ``begun`` is the time of the request by the session's clock."""

    def record(body: bytes, *, is_whole: bool) -> None:
        reply = RelayedReply()
        reply.parse_body(body)
        if read is not None and answer.ok and (is_whole or reply.has_end):
            session.record_reply(read, reply, (session.clock() - begun) * 1000)

    response = web.StreamResponse(
        status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")}
    )
    await response.prepare(request)
    body = bytearray()
    try:
        async for chunk in answer.content.iter_any():
            if len(body) < _MOST_BYTES:
                body += chunk
            await response.write(chunk)
    except asyncio.CancelledError:
        record(bytes(body), is_whole=False)
        raise
    except ConnectionResetError:
        record(bytes(body), is_whole=False)
        return response
    except (aiohttp.ClientError, TimeoutError) as error:
        session.record_failure(str(answer.url), error)
        if request.transport is not None:
            request.transport.close()  # a clean end would look like the whole reply
        return response
    if answer.status in _RELAY_ERRORS or answer.status >= 500:
        text = " ".join(bytes(body[:_ERROR_CHARS]).decode(errors="replace").split())
        session.last_error = ChatRefusedError(f"the endpoint answered {answer.status}: {text}")
    else:
        record(bytes(body), is_whole=True)
    await response.write_eof()
    return response


def _error_response(status: int, why: str) -> web.Response:
    """Return an error in the shape that the clients of both APIs read."""
    return web.json_response({"type": "error", "error": {"type": "invalid_request", "message": why}}, status=status)
