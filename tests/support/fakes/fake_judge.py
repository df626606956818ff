"""A judge without a model: an OpenAI-compatible server on the loopback device that says what it is told to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aiohttp import web

from sandbox.http.serving import bind_listener
from tests.support.network.aiohttp_servers import serve_on_loopback


class FaultyReply(Enum):
    """Faults that a judge may have in place of a reply."""

    HANGS = "it never answers"
    BREAKS_OFF = "it ends the connection in the middle of an answer"
    REFUSES = "it answers 500"
    NO_JSON = "its answer is no JSON"
    NO_CHAT = "its answer is JSON of another shape"
    NO_CHOICE = "its answer has no choice"
    NO_CONTENT = "its answer's content is null"
    ENDLESS = "its answer never ends"


GOOD, BAD = r"It runs the tests.\n\boxed{1}", r"It repeats itself. \boxed{-1}"


@dataclass
class FakeJudge:
    """Answers with ``says`` in turn, over and over."""

    replies: tuple[str | FaultyReply, ...]
    url: str = ""
    received_requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: list[str | None] = field(default_factory=list[str | None])
    active_requests: int = 0
    max_active_requests: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.replies)

    async def complete_chat(self, request: web.Request) -> web.StreamResponse:
        self.received_requests.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        says = next(self._next)
        self.active_requests += 1
        self.max_active_requests = max(self.max_active_requests, self.active_requests)
        try:
            await asyncio.sleep(0)
            return await self._respond(request, says)
        finally:
            self.active_requests -= 1

    async def _respond(self, request: web.Request, reply: str | FaultyReply) -> web.StreamResponse:
        match reply:
            case FaultyReply.HANGS:
                await self.closing.wait()
                return web.Response()
            case FaultyReply.REFUSES:
                return web.Response(status=500, text="out of memory")
            case FaultyReply.BREAKS_OFF | FaultyReply.ENDLESS:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(b'{"choices": [')
                while reply is FaultyReply.ENDLESS and not self.closing.is_set():
                    await response.write(b" " * 65536)
                if request.transport is not None:
                    request.transport.abort()
                return response
            case FaultyReply():
                texts = {
                    FaultyReply.NO_JSON: "boxed{1}",
                    FaultyReply.NO_CHAT: '{"choices": 3}',
                    FaultyReply.NO_CHOICE: '{"choices": []}',
                }
                return web.Response(text=texts.get(reply, '{"choices": [{"message": {"content": null}}]}'))
            case str():
                return web.json_response(make_completion(reply))


def make_completion(content: str) -> Mapping[str, Any]:
    message = {"role": "assistant", "content": content}
    return {"id": "1", "object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": {}}


@asynccontextmanager
async def serve_fake_judge(*replies: str | FaultyReply) -> AsyncGenerator[FakeJudge]:
    judge = FakeJudge(replies)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", judge.complete_chat)
    async with serve_on_loopback(app) as port:
        judge.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield judge
        finally:
            judge.closing.set()


def unreachable_url() -> str:
    """The address of a judge that is not there."""
    with bind_listener("127.0.0.1", 0) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
