"""An OpenAI-compatible chat server without a model, on the loopback device: it says what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.network.aiohttp_servers import serve_on_loopback

Request = dict[str, Any]


@dataclass(frozen=True)
class ChatErrorReply:
    """An answer that is no reply."""

    status: int
    text: str = "no"


@dataclass(frozen=True)
class ToolCallReply:
    """A reply whose calls the server has parsed."""

    names: tuple[str, ...]
    arguments: tuple[object, ...]
    has_ids: bool = True


@dataclass(frozen=True)
class MessageReply:
    """A reply whose message has these fields."""

    fields: Request


Reply = str | ChatErrorReply | ToolCallReply | MessageReply


def scripted_replies(*replies: Reply) -> Callable[[Request], Reply]:
    """Give every conversation the same replies turn by turn and repeat the last one."""

    def say(request: Request) -> Reply:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        return replies[min(turn, len(replies) - 1)]

    return say


@dataclass
class FakeChat:
    reply_to: Callable[[Request], Reply]
    models: tuple[str, ...] = ("tiny",)
    key: str = ""
    url: str = ""
    received_requests: list[Request] = field(default_factory=list[Request])
    may_reply: asyncio.Event = field(default_factory=asyncio.Event)
    """Replies wait until it is set."""

    def __post_init__(self) -> None:
        self.may_reply.set()

    async def list_models(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.Response(status=401)
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})

    async def complete_chat(self, request: web.Request) -> web.Response:
        body: Request = await request.json()
        self.received_requests.append(body)
        await self.may_reply.wait()
        reply = self.reply_to(body)
        if isinstance(reply, ChatErrorReply):
            return web.Response(status=reply.status, text=reply.text)
        message: dict[str, Any] = {"role": "assistant", "content": reply}
        if isinstance(reply, ToolCallReply):
            calls = [
                {
                    "id": f"c{number}" if reply.has_ids else None,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for number, (name, arguments) in enumerate(zip(reply.names, reply.arguments, strict=True))
            ]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        elif isinstance(reply, MessageReply):
            message = {"role": "assistant", **reply.fields}
        prompt = sum(len(json.dumps(each)) for each in body["messages"]) // 4
        usage = {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return web.json_response({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})


@asynccontextmanager
async def serve_fake_chat(reply_to: Callable[[Request], Reply], *, key: str = "") -> AsyncGenerator[FakeChat]:
    chat = FakeChat(reply_to, key=key)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat.complete_chat)
    app.router.add_get("/v1/models", chat.list_models)
    async with serve_on_loopback(app) as port:
        chat.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield chat
        finally:
            chat.may_reply.set()
