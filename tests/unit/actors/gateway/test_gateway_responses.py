"""The responses API of the official ``openai`` client against the gateway.  If these fail, Codex and agents of the
newer SDKs cannot run, or what they did is trained as something else."""

from __future__ import annotations

import json
import typing
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from actors.engines.messages import EngineUnavailable
from actors.gateway.responses_input import ResponsesRequest
from actors.gateway.responses_requests import RESPONSES_OPTIONS
from tests.support.actors.gateways import GatewayClients, open_gateway
from tests.support.fakes.fake_policy import LS, FakeTokenizer, ids_of

TOOL = {"type": "function", "name": "shell", "description": "Run.", "parameters": {}, "strict": False}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patch."}
CALL = '<tool_call>{"name": "shell", "arguments": {"command": "' + chr(LS) + '"}}</tool_call>'
"""Decodes to a command ``ls``; whoever tokenises that again gets other ids."""
STREAMED = pytest.mark.parametrize("stream", [False, True])


async def ask(made: GatewayClients, messages: str | list[Any], *, stream: bool = False, **options: Any) -> Response:
    if not stream:
        return await made.openai.responses.create(model="policy", input=messages, **options)
    events = await made.openai.responses.create(model="policy", input=messages, stream=True, **options)
    *_, last = [event async for event in events]
    assert last.type == f"response.{last.response.status}"
    return last.response


def last_prompt(made: GatewayClients) -> str:
    return FakeTokenizer().decode(made.engine.received_requests[-1].input_ids, skip_special_tokens=False)


def echo(reply: Response) -> list[Any]:
    """The items of a reply, as a harness sends them back."""
    return [item.model_dump(exclude_none=True) for item in reply.output]


@STREAMED
async def test_a_reply_is_returned_as_text_and_recorded_with_its_sampled_tokens(stream: bool) -> None:
    async with open_gateway(f"hi {chr(LS)}\x01") as made:
        reply = await ask(made, "hello", stream=stream, instructions="sys")
        (segment,) = made.session.segments()
    prompt = ids_of("<system>sys\x01\n<user>hello\x01\n<assistant>")
    assert segment.token_ids.tolist() == [*prompt, *ids_of(f"hi {chr(LS)}\x01")]
    assert segment.loss_mask.tolist() == [0] * len(prompt) + [1] * 5
    assert (reply.output_text, reply.status, reply.error, reply.model) == ("hi ls", "completed", None, "policy")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (
        len(prompt), 5, len(prompt) + 5
    )  # fmt: skip


@STREAMED
async def test_a_conversation_with_thoughts_and_calls_is_one_segment(stream: bool) -> None:
    said = f"<think>hm</think>I look.{CALL}{CALL}\x01"
    async with open_gateway(said, "done\x01") as made:
        messages: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
        first = await ask(made, messages, stream=stream, tools=[TOOL])
        calls = [item for item in first.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"of {number}"}
            for number, call in enumerate(calls)
        ]
        second = await ask(made, [*messages, *echo(first), *reversed(results)], stream=stream, tools=[TOOL])
        (segment,) = made.session.segments()
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [("shell", '{"command":"ls"}')] * 2
    assert second.output_text == "done"
    assert last_prompt(made).endswith("\x01\n<tool>of 0\x01\n<tool>of 1\x01\n<assistant>")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{said}done\x01")


@STREAMED
async def test_a_tool_that_takes_a_text_is_a_function_for_the_model(stream: bool) -> None:
    """Codex edits files with such a tool."""
    said = '<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin"}}</tool_call>\x01'
    async with open_gateway(said, "done\x01") as made:
        first = await ask(made, "hello", stream=stream, tools=[TOOL, PATCH])
        (call,) = first.output
        result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": [IMAGE, FILE, TEXT]}
        messages = [{"role": "user", "content": "hello"}, *echo(first), result]
        await ask(made, messages, stream=stream, tools=[TOOL, PATCH])
        (segment,) = made.session.segments()
    assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", "*** Begin")
    assert '"properties": {"input": {"type": "string"}}' in last_prompt(made)
    told = "[An image, which is not shown.]\n[A file, which is not shown.]\nsaved"
    assert last_prompt(made).endswith(f"\x01\n<tool>{told}\x01\n<assistant>")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{said}done\x01")


@STREAMED
@pytest.mark.parametrize("arguments", ['{"patch": "*** Begin"}', '{"input": "*** Begin", "in": 60.0}', '{"input": 1}'])
async def test_a_text_given_under_another_name_keeps_the_session_in_one_segment(arguments: str, stream: bool) -> None:
    said = f'<tool_call>{{"name": "apply_patch", "arguments": {arguments}}}</tool_call>\x01'
    async with open_gateway(said, "done\x01") as made:
        first = await ask(made, "hello", stream=stream, tools=[PATCH])
        (call,) = first.output
        result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "no patch"}
        await ask(made, [{"role": "user", "content": "hello"}, *echo(first), result], stream=stream, tools=[PATCH])
        (segment,) = made.session.segments()
    assert json.loads(call.input) == json.loads(arguments)
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{said}done\x01")


async def test_a_function_of_a_namespace_is_called_by_both_names() -> None:
    """Codex groups its tools for other agents so."""
    said = '<tool_call>{"name": "agents.close", "arguments": {}}</tool_call>\x01'
    tools = [
        TOOL,
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [{**TOOL, "name": "close"}]},
    ]
    async with open_gateway(said, "done\x01") as made:
        first = await ask(made, "hello", tools=tools)
        (call,) = first.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "closed"}
        await ask(made, [{"role": "user", "content": "hello"}, *echo(first), result], tools=tools)
        (segment,) = made.session.segments()
    assert (call.name, call.namespace) == ("close", "agents")
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of(f"{said}done\x01")


TEXT = {"type": "input_text", "text": "saved"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
FILE = {"type": "input_file", "file_id": "f"}


async def test_messages_of_every_role_and_a_rewritten_history_are_rendered() -> None:
    async with open_gateway("done\x01") as made:
        await ask(
            made,
            [
                {"role": "developer", "content": "dev"},
                {"type": "message", "role": "user", "content": "hello"},
                {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "secret"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "uno"}]},
                {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "out"},
            ],
        )
    assert last_prompt(made) == (
        "<system>dev\x01\n<user>hello\x01\n"
        '<assistant>uno<tool_call>{"name": "shell", "arguments": {}}</tool_call>\x01\n<tool>out\x01\n<assistant>'
    )


@STREAMED
async def test_a_reply_at_its_token_limit_is_incomplete(stream: bool) -> None:
    async with open_gateway("a long reply\x01") as made:
        reply = await ask(made, "hello", stream=stream, max_output_tokens=6)
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert reply.output_text == "a long"


async def test_the_official_client_assembles_a_stream() -> None:
    async with (
        open_gateway(f"I look.{CALL}\x01") as made,
        made.openai.responses.stream(model="m", input="hello", tools=[TOOL]) as events,
    ):
        final = await events.get_final_response()
    assert [item.type for item in final.output] == ["message", "function_call"]


async def test_a_second_call_is_cut_off_if_the_request_forbids_it() -> None:
    async with open_gateway(f"{CALL}{CALL}\x01") as made:
        reply = await ask(made, "hello", tools=[TOOL], parallel_tool_calls=False)
    assert ([item.type for item in reply.output], reply.parallel_tool_calls) == (["function_call"], False)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"top_p": 0.9}, "top_p"),
        ({"temperature": 0.0}, "temperature"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "shell"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "text"),
        ({"tools": [{"type": "web_search"}]}, None),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input"),
        ({"input": [{"role": "user", "content": [FILE]}]}, "input"),
        ({"input": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "begun"}]}, "messages"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(options: dict[str, Any], parameter: str | None) -> None:
    async with open_gateway("never\x01") as made:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(made, options.pop("input", "hello"), **options)
        assert made.session.segments() == ()
    assert (refused.value.param, refused.value.type) == (parameter, "invalid_request_error")


async def test_options_without_effect_are_accepted() -> None:
    async with open_gateway("yes\x01") as made:
        await ask(
            made,
            "hello",
            store=False,
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "low", "summary": "auto"},
            text={"verbosity": "low"},
            prompt_cache_key="k",
            tool_choice="auto",
            top_p=1.0,
        )
    assert len(made.engine.replies) == 1


def test_every_option_of_the_official_client_is_handled() -> None:
    known = RESPONSES_OPTIONS.harmless | RESPONSES_OPTIONS.neutral.keys() | set(ResponsesRequest.__struct_fields__)
    assert set(typing.get_type_hints(ResponseCreateParamsStreaming)) <= known


async def test_an_engine_that_fails_in_a_stream_is_told_as_a_failed_response() -> None:
    async with open_gateway(EngineUnavailable("gone")) as made:
        made.engine.may_reply.clear()
        made.engine.on_request = lambda: made.engine.stream_partial("hel")
        stream = await made.openai.responses.create(model="m", input="hello", stream=True)
        kinds = [(await anext(stream)).type for _ in range(5)]
        made.engine.may_reply.set()
        *_, last = [event async for event in stream]
        assert made.session.segments() == ()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.output_text.delta"
    assert (last.type, last.response.status, last.response.error.code) == ("response.failed", "failed", "server_error")


async def test_something_answers_at_the_root() -> None:
    """Claude Code looks for it before it asks."""
    async with open_gateway() as made:
        assert (await made.http.head(made.gateway.url)).status_code == 200
