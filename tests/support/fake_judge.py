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


class Odd(Enum):
    """What a judge may do in place of an answer."""

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

    says: tuple[str | Odd, ...]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: list[str | None] = field(default_factory=list[str | None])
    at_once: int = 0
    most_at_once: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.says)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        says = next(self._next)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            return await self._said(request, says)
        finally:
            self.at_once -= 1

    async def _said(self, request: web.Request, says: str | Odd) -> web.StreamResponse:
        match says:
            case Odd.HANGS:
                await self.over.wait()
                return web.Response()
            case Odd.REFUSES:
                return web.Response(status=500, text="out of memory")
            case Odd.BREAKS_OFF | Odd.ENDLESS:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(b'{"choices": [')
                while says is Odd.ENDLESS and not self.over.is_set():
                    await response.write(b" " * 65536)
                if request.transport is not None:
                    request.transport.abort()
                return response
            case Odd():
                texts = {Odd.NO_JSON: "boxed{1}", Odd.NO_CHAT: '{"choices": 3}', Odd.NO_CHOICE: '{"choices": []}'}
                return web.Response(text=texts.get(says, '{"choices": [{"message": {"content": null}}]}'))
            case str():
                return web.json_response(chat(says))


def chat(content: str) -> Mapping[str, Any]:
    message = {"role": "assistant", "content": content}
    return {"id": "1", "object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": {}}


@asynccontextmanager
async def fake_judge(*says: str | Odd) -> AsyncGenerator[FakeJudge]:
    judge = FakeJudge(says)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", judge.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    with bind_listener("127.0.0.1", 0) as listener:
        await web.SockSite(runner, listener).start()
        judge.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            yield judge
        finally:
            judge.over.set()
            await runner.cleanup()


def nobody() -> str:
    """The address of a judge that is not there."""
    with bind_listener("127.0.0.1", 0) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
