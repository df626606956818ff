"""Between a harness in a sandbox and a model at a URL: what it asks goes there, and what it asked is known.

A harness has a base URL on its sandbox's own loopback and a key of its attempt alone; the endpoint's address and key
stay outside.  Requests pass as they are, by OpenAI's or Anthropic's API, but for the model, the temperature and, where
one is asked for, the seed, which are the evaluation's; answers pass as they come.  Of these only the text and the
counts of tokens are read, as far as the endpoint tells them.

What a harness does with a refusal is its own; that the endpoint was not there, or would not have it, is
infrastructure's failure if it was its last word (:attr:`Relayed.trouble`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, cast

import aiohttp
import msgspec
from aiohttp import web

from actors.engines.messages import EngineUnavailable
from actors.gateway.session_keys import SessionKeys
from actors.rewards.episode_result import ModelTurn
from actors.rollout.chat_policy import ChatRefusedError
from protocol.errors import InfraError
from protocol.run_directory.json_fields import Event, get_integer, get_list, get_mapping, get_text
from protocol.trajectory import EpisodeStatus, Segment
from sandbox.docker.container_sockets import listen_in_container
from sandbox.session.sandbox_session import SandboxSession

_MOST_BYTES = 64 << 20
_SAID_CHARS = 300
_PASSED = ("Content-Type", "anthropic-version", "anthropic-beta", "Accept")
"""Headers of a request that reach the endpoint."""
_NOT_THERE = 502
_OUR_SIDE = {401, 403, 404, 429}
"""What an endpoint says to who asks it wrongly, which the harness does not."""


OnReply = Callable[[int, "RelayedReply", float], None]
"""Told of each reply: its number, what can be read of it, and milliseconds from the request to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    url: str
    """As OpenAI's clients have it, usually with ``/v1`` at its end."""
    model: str
    key: str
    temperature: float
    max_replies: int
    deadline_s: float
    """Of one reply."""


@dataclass(slots=True)
class RelaySession:
    """One attempt's, as :class:`actors.rollout.harness.Line` has it."""

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
    _turns: list[ModelTurn] = field(default_factory=list[ModelTurn])
    _under_way: int = 0
    _waited_s: float = 0.0
    _since: float = 0.0

    def turns(self) -> Sequence[ModelTurn]:
        return self._turns

    def segments(self) -> Sequence[Segment]:
        """Nobody knows its tokens."""
        return ()

    @property
    def last_content(self) -> str:
        return self._turns[-1].text if self._turns else ""

    @property
    def waited_s(self) -> float:
        return self._waited_s + (self.clock() - self._since if self._under_way else 0.0)

    @property
    def is_full(self) -> bool:
        return len(self._turns) + self._under_way >= self.max_replies

    def close(self) -> None:
        self.ended = True

    @contextmanager
    def track_call(self) -> Generator[None]:
        """A call is under way."""
        if not self._under_way:
            self._since = self.clock()
        self._under_way += 1
        try:
            yield
        finally:
            self._waited_s = self.waited_s
            self._since = self.clock()
            self._under_way -= 1

    def record_failure(self, url: str, error: Exception) -> str:
        """A call came to nothing; why, for who reads it."""
        why = f"{url}: {str(error) or 'no answer in time'}"
        self.last_error = EngineUnavailable(why)
        return why

    def record_reply(self, said: RelayedReply, ms: float) -> None:
        self.limit = self.last_error = None
        self.on_reply(len(self._turns), said, ms)
        self.prompt_tokens += said.prompt_tokens
        self.sampled_tokens += said.sampled_tokens
        self._turns.append(ModelTurn(said.text))


@dataclass(slots=True)
class RelayedReply:
    """What can be read of a reply, by either API, whole or streamed."""

    text: str = ""
    prompt_tokens: int = 0
    sampled_tokens: int = 0

    def parse_body(self, body: bytes) -> None:
        """The body of an answer."""
        lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
        for part in lines or [body]:
            try:
                value = msgspec.json.decode(part)
            except msgspec.DecodeError:
                continue
            if isinstance(value, dict):
                self._parse_object(cast("Event", value))

    def _parse_object(self, value: Event) -> None:
        self._read_usage(get_mapping(value, "usage"))
        self._read_usage(get_mapping(get_mapping(value, "message"), "usage"))
        for choice in get_list(value, "choices"):
            if isinstance(choice, dict):
                self.text += get_text(get_mapping(choice, "message"), "content") + get_text(
                    get_mapping(choice, "delta"), "content"
                )
        for block in get_list(value, "content"):
            if isinstance(block, dict):
                self.text += get_text(block, "text")
        self.text += get_text(get_mapping(value, "delta"), "text")

    def _read_usage(self, usage: Event) -> None:
        """The last word of an answer is all of it."""
        self.prompt_tokens = get_integer(usage, "prompt_tokens", get_integer(usage, "input_tokens", self.prompt_tokens))
        sampled = get_integer(usage, "output_tokens", self.sampled_tokens)
        self.sampled_tokens = get_integer(usage, "completion_tokens", sampled)


class ApiRelay:
    """``async with Relay(settings) as relay: with relay.session(name, seed, on_reply) as line: async with
    relay.door(…) as key:`` and a harness may ask."""

    def __init__(self, settings: RelaySettings) -> None:
        self.settings = settings
        self._keys = SessionKeys(secrets.token_bytes(32))
        self._open: dict[str, RelaySession] = {}
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle_request)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        self._upstream = aiohttp.ClientSession(trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._upstream.close()

    @contextmanager
    def open_session(self, name: str, seed: int, on_reply: OnReply) -> Generator[RelaySession]:
        """``name`` is no other open one's."""
        line = self._open[name] = RelaySession(name, seed, self.settings.max_replies, on_reply)
        try:
            yield line
        finally:
            line.close()
            del self._open[name]

    @asynccontextmanager
    async def listen_in_sandbox(self, sandbox: SandboxSession, port: int, line: RelaySession) -> AsyncGenerator[str]:
        """Be reached at ``port`` of the sandbox's loopback; gives the key that ``line``'s harness has to show."""
        site = web.SockSite(self._runner, await listen_in_container(sandbox.engine, sandbox.container, port))
        await site.start()
        try:
            yield self._keys.create_key(line.name)
        finally:
            await site.stop()

    async def _handle_request(self, request: web.Request) -> web.StreamResponse:
        line = self._session_of(request)
        if line is None:
            return _error_response(401, "this API key is of no attempt that is under way")
        counts = request.method == "POST" and not request.path.endswith("/count_tokens")
        if counts and line.is_full:
            line.limit = EpisodeStatus.TURN_LIMIT
            return _error_response(429, f"the session has had its {line.max_replies} replies")
        with line.track_call():
            return await self._forward(request, line, counts=counts)

    def _session_of(self, request: web.Request) -> RelaySession | None:
        told = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        line = self._open.get(self._keys.verify_key(told) or "")
        return line if line is not None and not line.ended else None

    async def _forward(self, request: web.Request, line: RelaySession, *, counts: bool) -> web.StreamResponse:
        settings, body = self.settings, await request.read()
        headers = {"Content-Type": "application/json"} if body else {}
        headers |= {name: value for name in _PASSED if (value := request.headers.get(name))}
        if settings.key:
            headers |= {"Authorization": f"Bearer {settings.key}", "x-api-key": settings.key}
        url = f"{settings.url}/{request.path.removeprefix('/v1').lstrip('/')}"
        limit, begun = aiohttp.ClientTimeout(total=settings.deadline_s), line.clock()
        try:
            async with self._upstream.request(
                request.method,
                url,
                data=self._rewrite_body(body, line) if body else None,
                headers=headers,
                timeout=limit,
            ) as answer:
                return await _stream_answer(request, answer, line, begun, counts=counts)
        except (aiohttp.ClientError, TimeoutError) as error:
            return _error_response(_NOT_THERE, line.record_failure(settings.url, error))

    def _rewrite_body(self, body: bytes, line: RelaySession) -> bytes:
        """The request with the evaluation's own settings; what is no JSON object passes as it is."""
        try:
            asked = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return body
        if not isinstance(asked, dict):
            return body
        ours = {"model": self.settings.model, "temperature": self.settings.temperature}
        seeded = {"seed": line.seed + len(line.turns())} if "seed" in asked else {}
        return msgspec.json.encode({**asked, **ours, **seeded})


async def _stream_answer(
    request: web.Request, answer: aiohttp.ClientResponse, line: RelaySession, begun: float, *, counts: bool
) -> web.StreamResponse:
    """Hand on an answer as it comes.  ``begun``: when it was asked for, by the line's clock."""
    told = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")})
    await told.prepare(request)
    body = bytearray()
    try:
        async for chunk in answer.content.iter_any():
            if len(body) < _MOST_BYTES:
                body += chunk
            await told.write(chunk)
    except (aiohttp.ClientError, TimeoutError) as error:
        line.record_failure(str(answer.url), error)
        if request.transport is not None:
            request.transport.close()  # an end without a break would pass for the whole answer
        return told
    if answer.status in _OUR_SIDE or answer.status >= 500:
        said = " ".join(bytes(body[:_SAID_CHARS]).decode(errors="replace").split())
        line.last_error = ChatRefusedError(f"the endpoint answered {answer.status}: {said}")
    elif counts and answer.ok:
        said = RelayedReply()
        said.parse_body(bytes(body))
        line.record_reply(said, (line.clock() - begun) * 1000)
    await told.write_eof()
    return told


def _error_response(status: int, why: str) -> web.Response:
    """In the shape that both APIs' clients read."""
    return web.json_response({"type": "error", "error": {"type": "invalid_request", "message": why}}, status=status)
