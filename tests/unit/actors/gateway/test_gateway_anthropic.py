"""The official ``anthropic`` client against the gateway.  If these fail, a harness that speaks Anthropic's API cannot
run, or what it did is trained as something else."""

from __future__ import annotations

import typing

import anthropic
import pytest
from anthropic.types import Message
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from actors.engines.messages import EngineUnavailable
from actors.gateway.anthropic_requests import ANTHROPIC_OPTIONS, AnthropicMessagesRequest
from tests.support.actors.gateways import GatewayClients, open_gateway
from tests.support.fakes.fake_policy import END, LS, FakeTokenizer

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"name": "shell", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}
CALL = '<tool_call>{"name": "shell", "arguments": {"command": "' + chr(LS) + '"}}</tool_call>'
"""Decodes to a command ``ls``; whoever tokenises that again gets other ids."""


def ids(text: str) -> list[int]:
    return [END if char == "\x01" else ord(char) for char in text]


async def ask(rig: GatewayClients, messages: list[object], *, stream: bool = False, **options: object) -> Message:
    body = {"model": "policy", "max_tokens": 200, "messages": messages, **options}
    if not stream:
        return await rig.anthropic.messages.create(**body)
    async with rig.anthropic.messages.stream(**body) as events:
        return await events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_is_returned_as_text_and_recorded_with_its_sampled_tokens(stream: bool) -> None:
    async with open_gateway(f"hi {chr(LS)}\x01") as made:
        message = await ask(made, HELLO, stream=stream, system=[{"type": "text", "text": "sys"}])
        (segment,) = made.session.segments()
    prompt = ids("<system>sys\x01\n<user>hello\x01\n<assistant>")
    assert segment.token_ids.tolist() == [*prompt, *ids(f"hi {chr(LS)}\x01")]
    assert segment.loss_mask.tolist() == [0] * len(prompt) + [1] * 5
    (block,) = message.content
    assert (block.type, block.text, message.stop_reason, message.stop_sequence) == ("text", "hi ls", "end_turn", None)
    assert (message.usage.input_tokens, message.usage.output_tokens) == (len(prompt), 5)


async def test_a_stream_reports_no_output_tokens_at_the_start_and_all_at_the_end() -> None:
    async with open_gateway(f"I look.{CALL}\x01") as made:
        stream = await made.anthropic.messages.create(
            model="m", max_tokens=200, messages=HELLO, tools=[TOOL], stream=True
        )
        events = [event async for event in stream]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event.type for event in events] == ["message_start", *block, *block, "message_delta", "message_stop"]
    assert events[0].message.usage.output_tokens == 0
    assert events[-2].usage.output_tokens == len(f"I look.{CALL}\x01")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_conversation_is_one_segment_of_the_sampled_token_ids(stream: bool) -> None:
    async with open_gateway(f"I look.{CALL}{CALL}\x01", "done\x01") as made:
        first = await ask(made, HELLO, stream=stream, tools=[TOOL])
        calls = [block for block in first.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "a b"} for call in calls]
        content = [*results, {"type": "text", "text": "and?"}]
        echo = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]}
        messages = [*HELLO, echo, {"role": "user", "content": content}]
        second = await ask(made, messages, stream=stream, tools=[TOOL])
        (segment,) = made.session.segments()
    assert first.stop_reason == "tool_use"
    assert [call.input for call in calls] == [{"command": "ls"}] * 2
    assert second.stop_reason == "end_turn"
    text = FakeTokenizer().decode(segment.token_ids.tolist(), skip_special_tokens=False)
    assert text.endswith("\x01\n<tool>a b\x01\n<tool>a b\x01\n<user>and?\x01\n<assistant>done\x01")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids(f"I look.{CALL}{CALL}\x01done\x01")


async def test_tool_results_and_texts_keep_their_message_order_in_the_prompt() -> None:
    """Otherwise the model would be trained on a conversation that the harness did not have."""
    async with open_gateway(f"I look.{CALL}\x01", "done\x01") as made:
        first = await ask(made, HELLO, tools=[TOOL])
        (call,) = [block for block in first.content if block.type == "tool_use"]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "no such file", "is_error": True}
        content = [{"type": "text", "text": "before"}, result, {"type": "text", "text": "behind"}]
        echo = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]}
        await ask(made, [*HELLO, echo, {"role": "user", "content": content}], tools=[TOOL])
        (segment,) = made.session.segments()
    text = FakeTokenizer().decode(segment.token_ids.tolist(), skip_special_tokens=False)
    assert "<user>before\x01\n<tool>Error: no such file\x01\n<user>behind\x01\n" in text


async def test_a_history_that_the_harness_rewrites_begins_another_segment() -> None:
    async with open_gateway("one\x01", "two\x01") as made:
        await ask(made, HELLO)
        await ask(made, [*HELLO, {"role": "assistant", "content": "uno"}, {"role": "user", "content": "on"}])
        first, second = made.session.segments()
    assert (first.parent, second.parent) == (-1, 0)
    assert [*first.token_ids[: second.offset], *second.token_ids] == [
        *made.engine.received_requests[1].input_ids,
        *ids("two\x01"),
    ]


async def test_a_stop_sequence_is_named() -> None:
    async with open_gateway("abc STOP more\x01") as made:
        message = await ask(made, HELLO, stop_sequences=["STOP"])
        (segment,) = made.session.segments()
    assert (message.content[0].text, message.stop_reason, message.stop_sequence) == ("abc ", "stop_sequence", "STOP")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids("abc STOP")


async def test_a_reply_at_its_token_limit_reports_it() -> None:
    async with open_gateway("abcdef\x01") as made:
        message = await made.anthropic.messages.create(model="m", max_tokens=3, messages=HELLO)
    assert (message.content[0].text, message.stop_reason) == ("abc", "max_tokens")


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_are_returned_only_if_requested(stream: bool) -> None:
    sampled = "<think>hm</think>\n\nyes\x01"
    async with open_gateway(sampled, sampled) as made:
        plain = await ask(made, HELLO, stream=stream)
        reply = await ask(made, HELLO, stream=stream, thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in plain.content] == ["text"]
    assert [(block.type, getattr(block, "thinking", "")) for block in reply.content] == [
        ("thinking", "hm"),
        ("text", ""),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"top_p": 0.9},
        {"top_k": 5},
        {"temperature": 1.0},
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"extra_body": {"mcp_servers": []}},
    ],
)
async def test_an_option_under_which_log_probabilities_would_be_false_is_refused(options: dict[str, object]) -> None:
    async with open_gateway("never\x01") as made:
        with pytest.raises(anthropic.BadRequestError) as refused:
            await ask(made, HELLO, **options)
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert made.engine.received_requests == []


def test_every_option_of_the_official_client_is_handled() -> None:
    known = (
        ANTHROPIC_OPTIONS.harmless | ANTHROPIC_OPTIONS.neutral.keys() | set(AnthropicMessagesRequest.__struct_fields__)
    )
    assert set(typing.get_type_hints(MessageCreateParamsStreaming)) <= known


async def test_errors_have_the_format_of_the_anthropic_api() -> None:
    async with open_gateway(EngineUnavailable("restarting")) as made:
        with pytest.raises(anthropic.AuthenticationError) as stranger:
            await made.anthropic.with_options(api_key="sk-nobody").messages.create(
                model="m", max_tokens=9, messages=HELLO
            )
        with pytest.raises(anthropic.InternalServerError) as failed:
            await ask(made, HELLO)
        with pytest.raises(anthropic.NotFoundError) as missing:
            await made.anthropic.models.retrieve("gpt")
    kinds = [error.value.body["error"]["type"] for error in (stranger, failed, missing)]
    assert kinds == ["authentication_error", "overloaded_error", "not_found_error"]
    assert failed.value.status_code == 503


async def test_a_bearer_token_is_accepted_in_place_of_an_api_key() -> None:
    async with open_gateway("yes\x01") as made:
        bearer = made.anthropic.with_options(api_key=None, auth_token=made.anthropic.api_key)
        message = await bearer.messages.create(model="m", max_tokens=9, messages=HELLO)
    assert message.content[0].text == "yes"


async def test_tokens_are_counted_and_the_policy_is_listed() -> None:
    async with open_gateway("yes\x01") as made:
        counted = await made.anthropic.messages.count_tokens(model="m", messages=HELLO, tools=[TOOL])
        listed = await made.anthropic.models.list()
        await ask(made, HELLO, tools=[TOOL])
    assert counted.input_tokens == len(made.engine.received_requests[0].input_ids)
    assert [model.id for model in listed.data] == ["policy"]
