"""The official clients, while the policy still speaks.  If these fail, a person who works with a harness looks at
nothing until a reply is whole, or a harness takes half of one for all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import anthropic
import httpx
import openai
import pytest
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from actors.engines.messages import EngineUnavailable, GenerateReply, GenerateRequest, OnPartialReply
from actors.engines.routing.router import Router
from actors.tokens.chat_messages import ChatMessage
from protocol.trajectory import Segment
from tests.support.actors.gateways import GatewayClients, open_gateway
from tests.support.fakes.fake_policy import FakeTokenizer, ids_of, make_reply, partial_reply

HELLO = [{"role": "user", "content": "hello"}]
FUNCTION = {"name": "shell", "description": "Run."}
CALL = '<tool_call>{"name": "shell", "arguments": {"command": "ls"}}</tool_call>'

Event = ChatCompletionChunk | RawMessageStreamEvent | ResponseStreamEvent
Stream = AsyncIterator[Event]
Asking = Callable[..., Awaitable[Stream]]


async def by_openai(
    made: GatewayClients, *, stream: bool = True, tools: bool = False, stop: str | None = None
) -> Stream:
    options = {"tools": [{"type": "function", "function": {**FUNCTION, "parameters": {}}}]} if tools else {}
    options |= {"stop": [stop]} if stop else {}
    return await made.openai.chat.completions.create(model="m", messages=HELLO, stream=stream, **options)


async def by_anthropic(
    made: GatewayClients, *, stream: bool = True, tools: bool = False, stop: str | None = None
) -> Stream:
    options = {"tools": [{**FUNCTION, "input_schema": {}}]} if tools else {}
    options |= {"stop_sequences": [stop]} if stop else {}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    return await made.anthropic.messages.create(
        model="m", max_tokens=200, messages=HELLO, stream=stream, thinking=thinking, **options
    )


async def by_responses(
    made: GatewayClients, *, stream: bool = True, tools: bool = False, stop: str | None = None
) -> Stream:
    if stop:
        pytest.skip("the API has no stop strings")
    options = {"tools": [{"type": "function", **FUNCTION, "parameters": {}, "strict": False}]} if tools else {}
    return await made.openai.responses.create(model="m", input=HELLO, stream=stream, **options)


asked_by = pytest.mark.parametrize("ask", [by_openai, by_anthropic, by_responses])


def text_of(event: Event) -> str:
    """Return an event's text: thoughts in brackets, calls by their arguments."""
    if isinstance(event, ChatCompletionChunk):
        if not event.choices:
            return ""
        delta = event.choices[0].delta
        thoughts = getattr(delta, "reasoning_content", None)
        arguments = [call.function.arguments for call in delta.tool_calls or () if call.function]
        return (f"[{thoughts}]" if thoughts else "") + (delta.content or "") + "".join(map(str, arguments))
    if event.type.startswith("response."):
        text = getattr(event, "delta", "")
        return f"[{text}]" if event.type == "response.reasoning_text.delta" else text
    if event.type != "content_block_delta":
        return ""
    match event.delta.type:
        case "thinking_delta":
            return f"[{event.delta.thinking}]"
        case "input_json_delta":
            return event.delta.partial_json
        case _:
            return event.delta.text


async def next_text(stream: Stream) -> str:
    while not (text := text_of(await anext(stream))):
        pass
    return text


async def rest(stream: Stream) -> str:
    return "".join([text_of(event) async for event in stream])


def speaking(made: GatewayClients, *texts: str) -> None:
    """The policy has said each of these, one after the other, before it waits for its end."""
    made.engine.may_reply.clear()
    made.engine.on_request = lambda: [made.engine.stream_partial(text) for text in texts] and None


@asked_by
async def test_text_is_streamed_during_sampling(ask: Asking) -> None:
    async with open_gateway("one two three\x01") as made:
        speaking(made, "one ")
        stream = await ask(made)
        assert await next_text(stream) == "one "
        made.engine.stream_partial("one two")
        assert await next_text(stream) == "two"
        assert made.engine.replies == []
        made.engine.may_reply.set()
        assert await rest(stream) == " three"
        (segment,) = made.session.segments()
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of("one two three\x01")


@asked_by
async def test_a_streamed_reply_is_recorded_like_a_whole_one(ask: Asking) -> None:
    kept = list[Segment]()
    for stream in (True, False):
        async with open_gateway(f"<think>hm</think>\n\nI look.{CALL}\x01") as made:
            made.engine.on_request = lambda: made.engine.stream_partial("<think>hm</think>\n\nI lo")
            reply = await ask(made, tools=True, stream=stream)
            if stream:
                await rest(reply)
            kept += made.session.segments()
    assert str(kept[0]) == str(kept[1])


@asked_by
async def test_thoughts_are_streamed_first_and_calls_only_when_complete(ask: Asking) -> None:
    async with open_gateway(f"<think>hm, so</think>\n\nI look. {CALL}\x01") as made:
        speaking(made, "<thi", "<think>hm", "<think>hm, so</think>\n\nI look. <tool")
        stream = await ask(made, tools=True)
        assert await next_text(stream) == "[hm, so]"
        assert await next_text(stream) == "I look."
        made.engine.stream_partial(f"<think>hm, so</think>\n\nI look. {CALL[:50]}")
        made.engine.may_reply.set()
        assert json.loads(await rest(stream)) == {"command": "ls"}


class OpeningTokenizer(FakeTokenizer):
    """Its template begins the thoughts, as those of models that always think do."""

    def apply_chat_template(
        self,
        conversation: Sequence[ChatMessage],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        tools: Sequence[object] | None,
    ) -> str:
        text = super().apply_chat_template(
            conversation, tokenize=tokenize, add_generation_prompt=add_generation_prompt, tools=tools
        )
        return text + ("<think>\n" if add_generation_prompt else "")


@asked_by
async def test_thoughts_opened_by_the_template_are_streamed_as_thoughts_at_once(ask: Asking) -> None:
    async with open_gateway("hm, so</think>\n\nyes\x01", "hm\x01", tokenizer=OpeningTokenizer()) as made:
        speaking(made, "hm")
        stream = await ask(made)
        assert await next_text(stream) == "[hm]"
        made.engine.may_reply.set()
        assert await rest(stream) == "[, so]yes"
        left_open = await made.openai.chat.completions.create(model="m", messages=HELLO)
    message = left_open.choices[0].message
    assert (message.content, message.reasoning_content) == ("", "hm")


@asked_by
async def test_a_malformed_call_is_streamed_as_text(ask: Asking) -> None:
    async with open_gateway("I look. <tool_call>{oops</tool_call>\x01") as made:
        speaking(made, "I look. <tool_call>{oo")
        stream = await ask(made, tools=True)
        assert await next_text(stream) == "I look."
        made.engine.may_reply.set()
        assert await rest(stream) == " <tool_call>{oops</tool_call>"
        assert made.session.segments()[0].turns[-1].malformed


@asked_by
async def test_no_part_of_a_stop_string_is_streamed(ask: Asking) -> None:
    async with open_gateway("abc STOP more\x01") as made:
        speaking(made, "abc STO")
        stream = await ask(made, stop="STOP")
        assert await next_text(stream) == "abc "
        made.engine.stream_partial("abc STOP mo")
        made.engine.may_reply.set()
        assert await rest(stream) == ""


async def test_anthropic_streams_without_the_thinking_option_leave_thoughts_out() -> None:
    async with open_gateway("<think>hm</think>\n\nyes\x01") as made:
        speaking(made, "<think>hm</think>", "<think>hm</think>\n\nye")
        stream = await made.anthropic.messages.create(model="m", max_tokens=200, messages=HELLO, stream=True)
        assert await next_text(stream) == "ye"
        made.engine.may_reply.set()
        assert await rest(stream) == "s"


async def test_the_first_event_reports_the_prompt_tokens() -> None:
    """Harnesses add them up from Anthropic's first event."""
    async with open_gateway("one two\x01") as made:
        speaking(made, "one")
        stream = await by_anthropic(made)
        begun = await anext(stream)
        assert (begun.type, begun.message.usage.input_tokens) == (
            "message_start",
            len(made.engine.received_requests[0].input_ids),
        )
        made.engine.may_reply.set()
        assert [event async for event in stream][-2].usage.output_tokens == len("one two\x01")


async def test_a_reply_that_is_not_streamed_is_not_watched() -> None:
    """Each engine would be asked for it five times a second."""
    async with open_gateway("yes\x01") as made:
        await made.openai.chat.completions.create(model="m", messages=HELLO)
        assert made.engine.watch is None


# -- what goes wrong ---------------------------------------------------------------------------------------------


@asked_by
async def test_an_engine_failure_before_the_first_output_is_a_503(ask: Asking) -> None:
    """After which clients ask again by themselves."""
    async with open_gateway(EngineUnavailable("restarting"), "there\x01", retries=1) as made:
        made.engine.on_request = lambda: made.engine.stream_partial("<tool_call>")
        assert await rest(await ask(made, tools=True)) == "there"
    async with open_gateway(EngineUnavailable("restarting")) as made:
        with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)) as failed:
            await ask(made)
    assert failed.value.status_code == 503


@pytest.mark.parametrize("ask", [by_openai, by_anthropic])
async def test_an_engine_failure_after_output_is_an_error_in_the_stream_and_not_recorded(ask: Asking) -> None:
    async with open_gateway(EngineUnavailable("gone for good")) as made:
        speaking(made, "one ")
        stream = await ask(made)
        assert await next_text(stream) == "one "
        made.engine.may_reply.set()
        with pytest.raises((openai.APIError, anthropic.APIStatusError), match="gone for good"):
            await rest(stream)
        assert made.session.segments() == ()
        assert str(made.session.last_error) == "gone for good", (
            "the episode would be graded as if the policy had failed"
        )


@pytest.mark.parametrize("ask", [by_openai, by_anthropic])
async def test_a_session_that_ends_during_a_stream_sends_an_error_in_it(ask: Asking) -> None:
    async with open_gateway("one two\x01") as made:
        speaking(made, "one ")
        stream = await ask(made)
        await next_text(stream)
        made.session.close()
        made.engine.may_reply.set()
        with pytest.raises((openai.APIError, anthropic.APIStatusError), match="episode is over"):
            await rest(stream)
        assert made.session.segments() == ()


@asked_by
async def test_a_client_that_closes_a_stream_stops_sampling_and_nothing_is_recorded(ask: Asking) -> None:
    async with open_gateway("one two\x01") as made:
        speaking(made, "one ")
        stream = await ask(made)
        await next_text(stream)
        await stream.close()
        while not made.engine.cancelled_requests:  # a state of the engine, not an event
            made.engine.stream_partial("one two")
            await asyncio.sleep(0.001)
        assert made.session.segments() == ()


@pytest.mark.parametrize(
    ("path", "options", "ping"),
    [
        ("/v1/chat/completions", {"messages": HELLO, "stream": True}, ": ping"),
        ("/v1/messages", {"messages": HELLO, "stream": True, "max_tokens": 200}, "event: ping"),
    ],
)
async def test_pings_are_sent_to_a_client_during_long_silence(path: str, options: dict[str, object], ping: str) -> None:
    """Or it gives up while the policy writes a long call; and the official clients pass over it."""
    async with open_gateway("one two\x01", quiet_s=0.01) as made:
        speaking(made, "one ")
        body = ""
        key = {"Authorization": f"Bearer {made.openai.api_key}"}
        async with made.http.stream("POST", made.gateway.url + path, json=options, headers=key) as response:
            async for line in response.aiter_lines():
                body += line + "\n"
                if body.count(ping) == 2:
                    made.engine.may_reply.set()
    again = httpx.MockTransport(lambda _: httpx.Response(200, text=body, headers=response.headers))
    async with httpx.AsyncClient(transport=again) as http:
        made.openai, made.anthropic = (
            made.openai.with_options(http_client=http),
            made.anthropic.with_options(http_client=http),
        )
        ask = by_openai if "completions" in path else by_anthropic
        assert await rest(await ask(made)) == "one two"


# -- engines that die --------------------------------------------------------------------------------------------


class DyingEngine:
    """Says ``text`` behind what came before, tells of it, and fails; without an error it ends the reply."""

    def __init__(self, name: str, text: str, error: Exception | None = None) -> None:
        self.name, self._text, self._error = name, text, error

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        assert watch is not None
        came = request.resume_from.plus(partial_reply(self._text))
        watch(came)
        if self._error is not None:
            raise self._error
        return make_reply(came.token_ids, 1)


@asked_by
async def test_a_stream_continues_on_another_engine_after_an_engine_died(ask: Asking) -> None:
    router = Router([DyingEngine("a", "one ", EngineUnavailable("dead")), DyingEngine("b", "two\x01")])
    async with open_gateway(generate=router.generate) as made:
        assert await rest(await ask(made)) == "one two"
        (segment,) = made.session.segments()
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of("one two\x01")
