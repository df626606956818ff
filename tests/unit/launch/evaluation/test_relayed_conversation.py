"""If these fail, a model at a URL is scored by a title that its harness asked for, or its calls are not looked at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.agents.agent import AgentToolCall
from actors.gateway import anthropic_replies, openai_replies, responses_replies
from actors.gateway.api_types import ApiCall, ReplyEncoder, ResponseMetadata
from actors.gateway.chat_request import ChatRequest
from actors.gateway.completion import CompletionEndReason, GatewayCompletion, ParsedCompletion
from launch.evaluation.solvers.relayed_conversation import RelayedConversation
from launch.evaluation.solvers.relayed_replies import RelayedCall, RelayedReply
from launch.evaluation.solvers.relayed_requests import read_relayed_request

NAMED = ResponseMetadata("policy", 0, "id")
CALL = ApiCall(request=ChatRequest(messages=[]))
TOOL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
WORK = [{"role": "system", "content": "You work."}, {"role": "user", "content": "Make hello.txt."}]
TITLE = [{"role": "system", "content": "Write a title."}, {"role": "user", "content": "Make hello.txt."}]


def completion(text: str, *commands: str) -> GatewayCompletion:
    calls = tuple(AgentToolCall("shell", {"command": each, "n": 1}, str(at)) for at, each in enumerate(commands))
    return GatewayCompletion(
        parsed=ParsedCompletion("", text, calls, malformed=False),
        end_reason=CompletionEndReason.TOOL_CALLS if calls else CompletionEndReason.END_OF_TURN,
        stop_text=None,
        prompt_tokens=30,
        sampled_tokens=20,
        cached_tokens=0,
    )


def reply_of(body: bytes) -> RelayedReply:
    found = RelayedReply()
    found.parse_body(body)
    return found


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", [openai_replies, anthropic_replies, responses_replies])
@pytest.mark.parametrize("commands", [(), ("echo é",), ("ls", "rm -rf /")])
def test_text_calls_and_counts_are_read_from_each_api(
    api: ReplyEncoder, commands: tuple[str, ...], *, is_streamed: bool
) -> None:
    answer = completion("hi thére\n", *commands)
    if is_streamed:
        encoder = api.stream_encoder(CALL, NAMED)
        begun = ParsedCompletion("", "hi th", (), malformed=False)
        found = reply_of(encoder.encode_partial(begun, 30) + encoder.encode_end(answer))
    else:
        found = reply_of(api.encode_reply(CALL, answer, NAMED))
    assert (found.turn.text, [call.command for call in found.turn.calls]) == ("hi thére\n", [*commands])
    assert (found.prompt_tokens, found.sampled_tokens) == (30, 20)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[1]", b"", b'{"choices": [1], "output": {}, "content": "x"}', b'{"a": "\xff"}']
)
def test_what_is_no_reply_reads_as_an_empty_one(body: bytes) -> None:
    assert reply_of(body) == RelayedReply()


def test_an_older_call_and_content_in_parts_are_read() -> None:
    call = {"name": "shell", "arguments": '{"command": "ls"}'}
    message = {"content": [{"type": "text", "text": "I look."}], "function_call": call}
    found = reply_of(json.dumps({"choices": [{"message": message}]}).encode()).turn
    assert (found.text, [each.command for each in found.calls]) == ("I look.", ["ls"])


def test_arguments_that_are_no_json_are_the_command() -> None:
    call = {"function": {"name": "shell", "arguments": "{rm -rf /"}}
    (found,) = reply_of(json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode()).turn.calls
    assert found.command == "{rm -rf /"


def converse(*asked: tuple[list[dict[str, Any]], bool, str], path: str = "chat/completions") -> RelayedConversation:
    """Answer requests of messages, with or without a tool."""
    conversation = RelayedConversation()
    for messages, offers_tools, text in asked:
        body = {"model": "m", "messages": messages, **({"tools": [TOOL]} if offers_tools else {})}
        request = conversation.open_request(path, json.dumps(body).encode())
        conversation.add_reply(request, RelayedReply(text))
    assert len(conversation.all_turns) == len(asked)
    return conversation


def play(*asked: tuple[list[dict[str, Any]], bool, str], path: str = "chat/completions") -> list[str]:
    """Return the texts that are the agent's work."""
    return [turn.text for turn in converse(*asked, path=path).turns]


def continued(text: str, result: str = "go on") -> list[dict[str, Any]]:
    return [*WORK, {"role": "assistant", "content": text}, {"role": "user", "content": result}]


def test_a_title_is_no_work_even_if_it_comes_last() -> None:
    assert play((TITLE, False, "A title"), (WORK, True, "done"), (TITLE, False, "Hello")) == ["done"]


def test_a_reply_that_is_asked_for_again_is_no_work() -> None:
    assert play((WORK, True, "what?"), (WORK, True, "done")) == ["done"]


def test_a_short_reply_that_a_request_continues_is_work() -> None:
    plan = [*TITLE, {"role": "assistant", "content": "ls "}, {"role": "user", "content": "go on"}]
    assert play((TITLE, False, "ls"), (plan, False, "cat"), (WORK, True, "done")) == ["ls", "cat", "done"]


def test_a_plan_that_is_quoted_is_work() -> None:
    quoted = [*WORK[:1], {"role": "user", "content": "Plan: first write hello.txt, then look"}]
    assert play((TITLE, False, "first write hello.txt, then look"), (quoted, True, "done"))[0].startswith("first")


def test_an_agent_by_text_only_does_work() -> None:
    assert play((WORK, False, "ls"), (continued("ls"), False, "done")) == ["ls", "done"]


@pytest.mark.parametrize("path", ["completions", "messages"])
def test_the_reply_to_a_request_that_is_not_read_is_work(path: str) -> None:
    assert play((TITLE, False, "A title"), (WORK, True, "done"), path=path) == ["A title", "done"]


def test_the_conversation_of_the_work_has_every_message_once() -> None:
    found = converse((TITLE, False, "A title"), (WORK, True, "ls"), (continued(" ls\n"), True, "done")).work
    assert found.messages == [*continued("ls"), {"role": "assistant", "content": "done"}]
    assert [tool.name for tool in found.tools] == ["shell"]


def test_a_conversation_that_is_not_read_has_the_replies_alone() -> None:
    assert converse((WORK, True, "ls"), (WORK, True, "done"), path="completions").work == (
        [{"role": "assistant", "content": "ls"}, {"role": "assistant", "content": "done"}],
        (),
        "requests to /v1/completions are not read",
    )


@pytest.mark.parametrize("arguments", ['{"command": ', '["ls"]', ["ls"], "7"])
def test_a_conversation_is_kept_if_a_call_has_arguments_that_are_no_object(arguments: object) -> None:
    """A harness sends them back as the model wrote them, and the gateway would refuse that."""
    calls = [{"id": "1", "type": "function", "function": {"name": "shell", "arguments": arguments}}]
    first: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "1", "content": "no"}
    conversation = RelayedConversation()
    for messages, message in ((WORK, first), ([*WORK, first, result], {"role": "assistant", "content": "done"})):
        body = {"model": "m", "messages": messages, "tools": [TOOL], "top_p": 0.9}
        request = conversation.open_request("chat/completions", json.dumps(body).encode())
        conversation.add_reply(request, reply_of(json.dumps({"choices": [{"message": message}]}).encode()))
    found = conversation.work
    assert (found.gap, [message["role"] for message in found.messages]) == (
        "",
        ["system", "user", "assistant", "tool", "assistant"],
    )
    assert [message.get("train", True) for message in found.messages if message["role"] == "assistant"] == [False, True]


@pytest.mark.parametrize(
    ("path", "request_body", "last"),
    [
        (
            "messages",
            {
                "messages": [
                    {"role": "user", "content": "Go."},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": ["x"]}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "no"}]},
                ]
            },
            "no",
        ),
        (
            "responses",
            {
                "input": [
                    {"type": "message", "role": "user", "content": "Go."},
                    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"},
                    {"type": "function_call_output", "call_id": "1", "output": "no"},
                ]
            },
            "no",
        ),
    ],
)
def test_requests_of_other_apis_are_read_though_the_gateway_would_refuse_them(
    path: str, request_body: dict[str, Any], last: str
) -> None:
    read = read_relayed_request(path, json.dumps(request_body).encode())
    assert [message["role"] for message in read.messages] == ["user", "assistant", "tool"]
    assert read.messages[-1]["content"] == last


def test_thoughts_that_stand_apart_are_kept() -> None:
    message = {"content": None, "reasoning_content": "hm"}
    for body in (
        {"choices": [{"message": message}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
        {"type": "response.completed", "response": {"output": [{"type": "reasoning", "summary": [{"text": "hm"}]}]}},
    ):
        assert reply_of(json.dumps(body).encode()).message.get("reasoning_content") == "hm"


def test_a_call_is_a_message_as_templates_expect_it() -> None:
    (call,) = reply_of(openai_replies.encode_reply(CALL, completion("hi", "ls"), NAMED)).message.get("tool_calls", [])
    assert call == {"type": "function", "function": {"name": "shell", "arguments": {"command": "ls", "n": 1}}}
    assert RelayedCall("shell", "{rm").message["function"]["arguments"] == {"input": "{rm"}
    assert RelayedCall("shell").message["function"]["arguments"] == {}
