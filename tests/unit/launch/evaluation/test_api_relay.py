"""If these fail, a harness is scored with another model than was asked for, sees a key that is not its own, or is
blamed for an endpoint that was not there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import aiohttp
import openai
import pytest
from aiohttp import web

from actors.engines.messages import EngineUnavailable
from actors.rollout.chat_policy import ChatRefusedError
from launch.evaluation.solvers import api_relay as relay_module
from launch.evaluation.solvers.api_relay import ApiRelay, RelaySession, RelaySettings
from protocol.processes.loopback import find_free_port
from protocol.trajectory import EpisodeStatus
from sandbox.session.sandbox_session import SandboxSession
from tests.support.fakes.fake_chat import ChatErrorReply, FakeChat, scripted_replies, serve_fake_chat
from tests.support.network.aiohttp_servers import serve_on_loopback

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


PART = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
END = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'


@pytest.mark.parametrize(("sent", "turns"), [(PART, []), (PART + END, ["hi"])], ids=["before its end", "after it"])
async def test_a_harness_that_hangs_up_has_had_a_reply_if_it_got_its_end(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, turns: list[str]
) -> None:
    """Codex hangs up at the last event, which is not always the end of the stream."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(sent)
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with serve_on_loopback(app, shutdown_timeout_s=0.01) as port:
        chat = FakeChat(scripted_replies(""), url=f"http://127.0.0.1:{port}/v1")
        async with asking(settings_of(chat, max_replies=1), monkeypatch) as (line, client):
            headers = {"Authorization": f"Bearer {client.api_key}"}
            async with aiohttp.ClientSession(headers=headers) as harness:
                stream = await harness.post(f"{client.base_url}chat/completions", json={"messages": []})
                assert await stream.content.readexactly(len(sent)) == sent
                stream.close()
            for _ in range(500):
                if line.is_full and not line.all_turns():
                    await asyncio.sleep(0.01)
            assert line.is_full == bool(turns), "the call is still pending"
            assert [turn.text for turn in line.all_turns()] == turns
            assert line.last_error is None


@pytest.mark.parametrize("body", [b'{"messages": "\xff"}', b'{"a": ' + b"[" * 100_000, b"no JSON"])
async def test_a_body_that_is_no_json_object_passes_unchanged(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """The endpoint answers with the same, which is no reply either."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_post("/v1/responses", echo)
    async with serve_on_loopback(app) as port:
        chat = FakeChat(scripted_replies(""), url=f"http://127.0.0.1:{port}/v1")
        async with asking(settings_of(chat), monkeypatch) as (line, client):
            headers = {"Authorization": f"Bearer {client.api_key}"}
            async with (
                aiohttp.ClientSession(headers=headers) as harness,
                harness.post(f"{client.base_url}responses", data=body) as answer,
            ):
                assert (answer.status, await answer.read()) == (200, body)
            assert [turn.text for turn in line.all_turns()] == [""]
