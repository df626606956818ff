"""An OpenAI-compatible chat server without a model, on the loopback device: it says what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sandbox.http.serving import bind_listener

Request = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """An answer that is no reply."""

    status: int
    text: str = "no"


@dataclass(frozen=True)
class Calls:
    """A reply whose calls the server has parsed."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]


Reply = str | Refusal | Calls


def scripted(*replies: Reply) -> Callable[[Request], Reply]:
    """To each conversation the same, turn by turn: the last one again and again."""

    def say(request: Request) -> Reply:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        return replies[min(turn, len(replies) - 1)]

    return say


@dataclass
class FakeChat:
    says: Callable[[Request], Reply]
    models: tuple[str, ...] = ("tiny",)
    key: str = ""
    url: str = ""
    asked: list[Request] = field(default_factory=list[Request])
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    """Replies wait until it is set."""

    def __post_init__(self) -> None:
        self.hold.set()

    async def list(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.Response(status=401)
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})

    async def answer(self, request: web.Request) -> web.Response:
        body: Request = await request.json()
        self.asked.append(body)
        await self.hold.wait()
        said = self.says(body)
        if isinstance(said, Refusal):
            return web.Response(status=said.status, text=said.text)
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if isinstance(said, Calls):
            calls = [
                {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for number, (name, arguments) in enumerate(zip(said.names, said.arguments, strict=True))
            ]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        prompt = sum(len(json.dumps(each)) for each in body["messages"]) // 4
        usage = {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return web.json_response({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})


@asynccontextmanager
async def fake_chat(says: Callable[[Request], Reply], *, key: str = "") -> AsyncGenerator[FakeChat]:
    chat = FakeChat(says, key=key)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat.answer)
    app.router.add_get("/v1/models", chat.list)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    with bind_listener("127.0.0.1", 0) as listener:
        await web.SockSite(runner, listener).start()
        chat.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            yield chat
        finally:
            chat.hold.set()
            await runner.cleanup()
