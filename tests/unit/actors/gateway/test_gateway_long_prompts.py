"""If these fail, one session's long prompt makes all others of its worker wait, or a session's tokens are mixed up."""

from __future__ import annotations

import asyncio
import threading

from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.gateway.chat_request import ChatRequest
from tests.support.actors.gateways import open_gateway
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine, ids_of

SOON_S = 60.0
LONG = "long" * 20_000
ROOM = 200_000


class HeldTokenizer(FakeTokenizer):
    """Encodes a long text only once the event loop has allowed it."""

    def __init__(self) -> None:
        self.begun, self.allowed = threading.Event(), threading.Event()

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        if LONG in text:
            self.begun.set()
            assert self.allowed.wait(SOON_S), "the loop stands still"
        return ids_of(text)


def asking(text: str) -> ChatRequest:
    return ChatRequest(messages=[{"role": "user", "content": text}])


async def test_the_loop_goes_on_and_a_reply_comes_in_while_a_long_prompt_is_rendered() -> None:
    tokenizer, engine = HeldTokenizer(), ScriptedEngine(["short\x01", "long\x01"])
    asked, answer = asyncio.Event(), asyncio.Event()

    async def generate(request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        asked.set()
        await answer.wait()
        return await engine.generate(request, watch)

    async with open_gateway(tokenizer=tokenizer, generate=generate, context_tokens=ROOM, total_tokens=ROOM) as made:
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            first = tasks.create_task(made.session.complete(asking("a")))
            await asked.wait()
            second = tasks.create_task(made.session.complete(asking(LONG)))
            await asyncio.to_thread(tokenizer.begun.wait, SOON_S)
            answer.set()
            tokenizer.allowed.set()
        assert first.result().prompt_tokens < second.result().prompt_tokens
        assert len(made.session.segments()) == made.session.replies == 2


async def test_a_request_that_is_given_up_ends_when_its_prompt_is_rendered() -> None:
    tokenizer = HeldTokenizer()
    async with open_gateway("x\x01", tokenizer=tokenizer, context_tokens=ROOM, total_tokens=ROOM) as made:
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            given_up = tasks.create_task(made.session.complete(asking(LONG)))
            await asyncio.to_thread(tokenizer.begun.wait, SOON_S)
            given_up.cancel()
            tokenizer.allowed.set()
        assert given_up.cancelled()
        assert (await made.session.complete(asking("a"))).sampled_tokens == 2
