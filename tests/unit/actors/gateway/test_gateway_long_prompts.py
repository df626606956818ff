"""If these fail, one session's long prompt makes all others of its worker wait, or a session's tokens are mixed up."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.gateway.chat_request import ChatRequest, ChatTool
from actors.rewards.judge_models import EngineJudgeModel
from actors.rewards.settings import JudgeSettings, JudgeSpec
from actors.rollout.episode import run_agent_episode
from actors.rollout.settings import EpisodeSettings
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.chat_template import Tokenizer
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY
from tests.support.actors.episodes import episode_context
from tests.support.actors.gateways import open_gateway
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine, ids_of
from tests.support.fakes.fake_terminal import FakeTerminal

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


class NotingTokenizer(FakeTokenizer):
    """Notes the threads that encode more than the short texts with which a template is tried."""

    def __init__(self) -> None:
        self.threads = set[int]()

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        if len(text) > 1000:
            self.threads.add(threading.get_ident())
        return ids_of(text)


def calling(name: str, arguments: dict[str, object]) -> list[ChatMessage]:
    call: ChatMessage = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }
    return [{"role": "user", "content": "a"}, call, {"role": "tool", "content": "b"}]


@pytest.mark.parametrize(
    "request_",
    [
        asking(LONG),
        ChatRequest(messages=calling("f", {"a": {"b": [LONG]}})),
        ChatRequest(messages=calling(LONG, {})),
        ChatRequest(messages=calling("f", {LONG: 1})),
        ChatRequest(messages=asking("a").messages, tools=(ChatTool("f", LONG, {}),)),
        ChatRequest(messages=asking("a").messages, tools=(ChatTool("f", "", {"description": LONG}),)),
        ChatRequest(messages=asking("a").messages * 2000),
    ],
    ids=["content", "argument", "name of a call", "name of an argument", "tool", "schema of a tool", "many messages"],
)
async def test_whatever_makes_a_prompt_long_is_rendered_in_a_thread(request_: ChatRequest) -> None:
    tokenizer = NotingTokenizer()
    async with open_gateway("x\x01", tokenizer=tokenizer, context_tokens=ROOM, total_tokens=ROOM) as made:
        await made.session.complete(request_)
    assert tokenizer.threads
    assert threading.get_ident() not in tokenizer.threads


async def test_a_judges_question_is_tokenized_in_a_thread() -> None:
    tokenizer = NotingTokenizer()
    spec = JudgeSpec(JudgeSettings(), "", model_path="/judge", context_tokens=ROOM)
    await EngineJudgeModel(spec, ChatFormat(cast("Tokenizer", tokenizer)), [ScriptedEngine([]).generate]).prepare(LONG)
    assert tokenizer.threads
    assert threading.get_ident() not in tokenizer.threads


async def test_a_long_tasks_opening_prompt_is_tokenized_in_a_thread() -> None:
    tokenizer, engine = NotingTokenizer(), ScriptedEngine(["done\x01"])
    settings = EpisodeSettings(max_new_tokens=100, context_tokens=ROOM, nominal_tokens_per_s=1.0)
    context = episode_context(settings, Task(id="t", instruction=LONG, expected_tests=("a",)))
    agent = HermesAgent(PromptTemplate(""), SHELL_ONLY, {})
    await run_agent_episode(context, agent, ChatFormat(cast("Tokenizer", tokenizer)), engine.generate, FakeTerminal())
    assert tokenizer.threads
    assert threading.get_ident() not in tokenizer.threads
