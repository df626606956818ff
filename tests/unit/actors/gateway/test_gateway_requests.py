"""Requests as harnesses send them, read without a gateway.  If these fail, a harness is refused what its API allows, or
is told a reason that is not the fault."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from actors.gateway.anthropic_requests import read_anthropic_request
from actors.gateway.api_types import ApiCall
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.openai_requests import read_openai_request
from actors.gateway.responses_requests import read_responses_request

USER = {"role": "user", "content": "hello"}
NAMES = ["look", "write"]


def anthropic_request(messages: Sequence[object]) -> ApiCall:
    return read_anthropic_request(json.dumps({"max_tokens": 9, "messages": [USER, *messages]}).encode())


def openai_request(messages: Sequence[object], **options: object) -> ApiCall:
    tools = [{"type": "function", "function": {"name": name}} for name in NAMES]
    return read_openai_request(json.dumps({"messages": [USER, *messages], "tools": tools, **options}).encode())


def responses_request(items: Sequence[object], **options: object) -> ApiCall:
    tools = [{"type": "function", "name": name} for name in NAMES]
    return read_responses_request(json.dumps({"input": [USER, *items], "tools": tools, **options}).encode())


def openai_calls(*ids: str | None, arguments: object = "{}") -> dict[str, object]:
    calls = [{"id": each, "type": "function", "function": {"name": "look", "arguments": arguments}} for each in ids]
    return {"role": "assistant", "tool_calls": calls}


def openai_result(call: str | None, content: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call, "content": content}


def anthropic_calls(*ids: str) -> dict[str, object]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": each, "name": "look", "input": {}} for each in ids],
    }


def anthropic_results(*ids: str) -> dict[str, object]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": each, "content": f"of {each}"} for each in ids],
    }


def contents(call: ApiCall) -> list[str]:
    return [message["content"] for message in call.request.messages if message["role"] == "tool"]


@pytest.mark.parametrize(
    "call",
    [
        anthropic_request([anthropic_calls("a"), anthropic_calls("b"), anthropic_results("b", "a")]),
        anthropic_request(
            [
                anthropic_calls("a"),
                {"role": "assistant", "content": "and"},
                anthropic_calls("b"),
                anthropic_results("b"),
                anthropic_results("a"),
            ]
        ),
        openai_request([openai_calls("a"), openai_calls("b"), openai_result("b", "of b"), openai_result("a", "of a")]),
        responses_request(
            [{"type": "function_call", "call_id": each, "name": "look", "arguments": None} for each in "ab"]
            + [{"type": "function_call_output", "call_id": each, "output": f"of {each}"} for each in "ba"]
        ),
    ],
)
def test_assistant_messages_in_a_row_are_one_reply(call: ApiCall) -> None:
    assert contents(call) == ["of a", "of b"]


def test_a_reply_after_results_is_another_one() -> None:
    call = anthropic_request(
        [anthropic_calls("a"), anthropic_results("a"), anthropic_calls("b"), anthropic_results("b")]
    )
    assert contents(call) == ["of a", "of b"]
    with pytest.raises(GatewayRequestError, match="'a', which the reply before it does not have"):
        anthropic_request([anthropic_calls("a"), anthropic_results("a"), anthropic_calls("b"), anthropic_results("a")])


@pytest.mark.parametrize("ids", [["a"], [None], [None, None], [None, "b"]])
def test_a_result_without_an_id_is_of_the_call_in_its_place(ids: list[str | None]) -> None:
    """Where there is one call, or the calls have no ids either."""
    results = [openai_result(None, f"of {place}") for place in range(len(ids))]
    assert contents(openai_request([openai_calls(*ids), *results])) == [f"of {place}" for place in range(len(ids))]


@pytest.mark.parametrize("result", [{"role": "tool", "content": "x"}, openai_result(None, "x"), openai_result("", "x")])
def test_a_result_without_an_id_is_refused_if_it_may_be_of_several_calls(result: object) -> None:
    with pytest.raises(GatewayRequestError, match="names no call, and the reply before it has 2"):
        openai_request([openai_calls("a", "b"), result, openai_result("b", "y")])


@pytest.mark.parametrize("arguments", [None, "", "{}", {}])
def test_a_call_may_have_no_arguments(arguments: object) -> None:
    messages = openai_request([openai_calls("a", arguments=arguments)]).request.messages
    assert [call["function"]["arguments"] for call in messages[1].get("tool_calls", ())] == [{}]


@pytest.mark.parametrize(("mode", "may_call"), [("auto", True), ("none", False)])
def test_only_the_allowed_tools_are_offered(mode: str, may_call: bool) -> None:
    flat = responses_request(
        [], tool_choice={"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "write"}]}
    )
    tools = [{"type": "function", "function": {"name": "write"}}]
    nested = openai_request([], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    for call in (flat, nested):
        assert ([tool.name for tool in call.request.tools], call.request.may_call) == (["write"], may_call)
    assert [tool.name for tool in responses_request([], tool_choice="auto").request.tools] == NAMES


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"type": "allowed_tools", "mode": "required", "tools": []}, "forces a call"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, "forces a call"),
        ({"type": "allowed_tools"}, "the allowed tools cannot be read: .*mode"),
        ({"type": "allowed_tools", "allowed_tools": None}, "the allowed tools cannot be read"),
        ({"type": "function", "name": "look"}, "forces a call"),
        ("required", "forces a call"),
    ],
)
def test_a_choice_that_forces_a_call_is_refused_by_name(choice: object, why: str) -> None:
    for read in (openai_request, responses_request):
        with pytest.raises(GatewayRequestError, match=why) as refused:
            read([], tool_choice=choice)
        assert refused.value.parameter == "tool_choice"


@pytest.mark.parametrize("half", ["\ud800", "\ud800x", "x\udc00", "\udc00\ud800"])
def test_half_of_a_character_is_refused_with_that_reason(half: str) -> None:
    message = {"role": "user", "content": half}
    for read in (anthropic_request, openai_request, responses_request):
        with pytest.raises(GatewayRequestError, match=r"lone surrogate '\\ud"):
            read([message])
    with pytest.raises(GatewayRequestError, match=r"arguments of look .* lone surrogate"):
        openai_request([openai_calls("a", arguments=json.dumps({"x": half}))])
    with pytest.raises(GatewayRequestError, match="truncated"):
        read_openai_request(b'{"messages": [')
