"""If these fail, a harness is scored with another model than was asked for, sees a key that is not its own, or is
blamed for an endpoint that was not there."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import openai
import pytest

from actors.engines.messages import EngineUnavailable
from actors.rollout.chat_policy import ChatRefusedError
from launch.evaluation.solvers import api_relay as relay_module
from launch.evaluation.solvers.api_relay import ApiRelay, RelayedReply, RelaySession, RelaySettings
from protocol.processes.loopback import find_free_port
from protocol.trajectory import EpisodeStatus
from sandbox.session.sandbox_session import SandboxSession
from tests.support.fakes.fake_chat import ChatErrorReply, FakeChat, scripted_replies, serve_fake_chat

SECRET = "sk-the-endpoints-own"
HEARD: list[tuple[int, str]] = []
"""Number and text of each reply that an observer was shown, in the test that runs."""


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    HEARD.clear()


class FakeRelaySandbox:
    engine, container = None, "c1"


@asynccontextmanager
async def asking(
    settings: RelaySettings, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[RelaySession, openai.AsyncOpenAI]]:
    """An attempt's line, and a client in its sandbox."""
    listener = socket.create_server(("127.0.0.1", 0))

    async def listening(*_: object) -> socket.socket:
        return listener

    monkeypatch.setattr(relay_module, "listen_in_container", listening)
    async with ApiRelay(settings) as relay:
        with relay.open_session(
            "evaluate-g000000-s00", 11, lambda turn, reply, _: HEARD.append((turn, reply.text))
        ) as line:
            async with relay.listen_in_sandbox(cast("SandboxSession", FakeRelaySandbox()), 3129, line) as key:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
                async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
                    yield line, client


def settings_of(chat: FakeChat, **changes: object) -> RelaySettings:
    made = RelaySettings(url=chat.url, model="tiny", key=SECRET, temperature=0.5, max_replies=3, deadline_s=30.0)
    return replace(made, **changes)


async def ask(client: openai.AsyncOpenAI, **options: Any) -> str:
    messages: Any = [{"role": "user", "content": "hello"}]
    answer = await client.chat.completions.create(model="gpt-4", messages=messages, **options)
    return answer.choices[0].message.content or ""


async def test_a_harness_reaches_the_evaluated_model_with_a_separate_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serve_fake_chat(scripted_replies("hi there"), key=SECRET) as chat,
        asking(settings_of(chat), monkeypatch) as made,
    ):
        line, client = made
        assert client.api_key != SECRET
        assert await ask(client, temperature=1.3, seed=5) == "hi there"
        assert await ask(client) == "hi there"
        assert [model.id async for model in client.models.list()] == ["tiny"]
    first, second = chat.received_requests
    assert (first["model"], first["temperature"], first["seed"], first["messages"][0]["content"]) == (
        "tiny", 0.5, 11, "hello"
    )  # fmt: skip
    assert "seed" not in second
    assert [turn.text for turn in line.turns()] == ["hi there", "hi there"]
    assert (line.last_content, line.sampled_tokens) == ("hi there", 14)
    assert HEARD == [(0, "hi there"), (1, "hi there")], "its recording has not what was said"
    assert line.prompt_tokens > 0
    assert (line.limit, line.last_error) == (None, None)


async def test_requests_with_another_key_or_after_the_attempt_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serve_fake_chat(scripted_replies("hi")) as chat,
        asking(settings_of(chat), monkeypatch) as (line, client),
    ):
        for key in ("lsk-evaluate-g000000-s00.00", "Bearer"):
            with pytest.raises(openai.AuthenticationError):
                await ask(client.with_options(api_key=key))
        line.close()
        with pytest.raises(openai.AuthenticationError):
            await ask(client)
    assert chat.received_requests == []


async def test_a_session_is_limited_to_its_number_of_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serve_fake_chat(scripted_replies("hi")) as chat,
        asking(settings_of(chat, max_replies=1), monkeypatch) as made,
    ):
        line, client = made
        await ask(client)
        with pytest.raises(openai.RateLimitError, match="has had its 1 replies"):
            await ask(client)
    assert (line.limit, len(chat.received_requests)) == (EpisodeStatus.TURN_LIMIT, 1)


async def test_a_failing_endpoint_is_recorded_as_an_error_until_it_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = iter([ChatErrorReply(503, "too busy"), ChatErrorReply(400, "too long"), "hi"])
    async with (
        serve_fake_chat(lambda _: next(replies)) as chat,
        asking(settings_of(chat), monkeypatch) as (line, client),
    ):
        with pytest.raises(openai.InternalServerError):
            await ask(client)
        assert isinstance(line.last_error, ChatRefusedError)
        assert "503: too busy" in str(line.last_error)
        line.last_error = None
        with pytest.raises(openai.BadRequestError):
            await ask(client)
        assert line.last_error is None, "what the harness asked wrongly is its own doing"
        line.last_error = ChatRefusedError("earlier")
        await ask(client)
        assert line.last_error is None


async def test_an_unreachable_endpoint_is_recorded_as_an_engine_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = FakeChat(scripted_replies(""), url=f"http://127.0.0.1:{find_free_port()}/v1")
    async with asking(settings_of(nobody), monkeypatch) as (line, client):
        with pytest.raises(openai.InternalServerError):
            await ask(client)
    assert isinstance(line.last_error, EngineUnavailable)


def sse_body(*values: object) -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(value).encode() + b"\n\n" for value in values) + b"data: [DONE]\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            json.dumps(
                {
                    "choices": [{"message": {"content": "hi"}}],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
                }
            ).encode(),
            RelayedReply("hi", 3, 2),
        ),
        (
            sse_body(
                {"choices": [{"delta": {"content": "h"}}]},
                {"choices": [{"delta": {"content": "i"}}], "usage": None},
                {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            ),
            RelayedReply("hi", 3, 2),
        ),
        (
            json.dumps(
                {
                    "content": [{"type": "text", "text": "hi"}, {"type": "tool_use"}],
                    "usage": {"input_tokens": 3, "output_tokens": 2},
                }
            ).encode(),
            RelayedReply("hi", 3, 2),
        ),
        (
            sse_body(
                {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
                {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
                {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}},
            ),
            RelayedReply("hi", 3, 2),
        ),
        (b"<html>", RelayedReply()),
        (b"[1]", RelayedReply()),
    ],
)
def test_text_and_token_counts_are_read_from_either_api_whole_or_streamed(body: bytes, expected: RelayedReply) -> None:
    found = RelayedReply()
    found.parse_body(body)
    assert found == expected
