"""Requests of a harness to the gateway, with what the policy answers, and both as the evaluation's relay sees them."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import Callable, Coroutine, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.gateway import (
    anthropic_replies,
    anthropic_requests,
    openai_replies,
    openai_requests,
    responses_replies,
    responses_requests,
)
from actors.gateway.api_types import ApiCall, ResponseMetadata
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.partial_completion import PartialCompletion
from actors.gateway.server import Gateway
from launch.evaluation.solvers.relayed_conversation import RelayedConversation
from launch.evaluation.solvers.relayed_replies import RelayedReply
from sandbox.http.json_structure import JsonStructure, TooMuchStructureError
from tests.fuzz.fuzz_target import FuzzFindingError, FuzzTarget, InputKind
from tests.support.actors.gateways import SAMPLING, FakeLimits
from tests.support.fakes.fake_policy import FakeTokenizer, ids_of, make_reply, partial_reply

T = TypeVar("T")

_METADATA = ResponseMetadata("policy", 1, "id")
_CALL = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls", "n": 3}}\n</tool_call>'
_REPLIES = ["Done.", f"<think>\nHm.\n</think>\n\nI look.{_CALL}", _CALL * 2, "a STOP b"]
_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


class _Exchange(NamedTuple):
    """A request's body, and the text that the policy or the endpoint answers."""

    body: bytes
    reply: str


def _read_exchange(data: bytes) -> _Exchange:
    """Return what ``{"body", "reply"}`` says; the input as a body if it is none."""
    try:
        value = json.loads(data)
        body, reply = value["body"], value["reply"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return _Exchange(data, _REPLIES[0])
    body = body.encode(errors="surrogatepass") if isinstance(body, str) else json.dumps(body).encode()
    return _Exchange(body, str(reply).encode(errors="replace").decode() or "\x01")


def _complete(read: Callable[[bytes], ApiCall], replies: ModuleType, errors: ModuleType, data: bytes) -> None:
    """Answer a request whole and as a stream, in one session."""
    exchange = _read_exchange(data)
    try:
        JsonStructure().add(exchange.body)
    except TooMuchStructureError:
        return
    gateway = Gateway(FakeTokenizer(), partial(_generate, exchange.reply), model="policy")
    with gateway.open_session(FakeLimits(), SAMPLING) as session:
        try:
            call = read(exchange.body)
            stream = replies.stream_encoder(call, _METADATA)
            events: list[bytes] = []

            def send(part: PartialCompletion) -> None:
                events.append(stream.encode_partial(part.parse(), part.prompt_tokens))

            _result(session.count_prompt_tokens(call.request))
            answer = _result(session.complete(call.request, send))
            json.loads(replies.encode_reply(call, answer, _METADATA))
            _check_events(b"".join([*events, stream.encode_end(answer)]))
            _result(session.complete(call.request))
        except GatewayRequestError as refused:
            json.loads(errors.encode_error(refused))
        session.segments()


async def _generate(reply: str, request: GenerateRequest, watch: OnPartialReply | None) -> GenerateReply:
    ids = ids_of(reply)[: request.max_new_tokens]
    for size in (len(ids) // 3, len(ids) // 2, len(ids)) if watch else ():
        watch(partial_reply(reply[:size]))
    return make_reply(ids, 1)


@cache
def _runner() -> asyncio.Runner:
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def _result(call: Coroutine[Any, Any, T]) -> T:
    return _runner().run(call)


def _check_events(stream: bytes) -> None:
    for line in stream.decode().split("\n"):
        if line.startswith("data:") and line != "data: [DONE]":
            json.loads(line.removeprefix("data:"))


def _relay(data: bytes) -> None:
    """Read a request and what an endpoint answers as the relay does, for each API."""
    exchange = _read_exchange(data)
    try:
        JsonStructure().add(exchange.body)
    except TooMuchStructureError:
        return
    conversation = RelayedConversation()
    for path in ("chat/completions", "responses", "messages"):
        request = conversation.open_request(path, exchange.body)
        reply = RelayedReply()
        reply.parse_body(exchange.reply.encode())
        conversation.add_reply(request, reply)
    if len(conversation.turns) > len(conversation.all_turns):
        raise FuzzFindingError("there are more turns of work than turns")


def _exchanges(bodies: Sequence[object], replies: Sequence[str]) -> list[bytes]:
    """Return inputs with the bodies as values, and as texts, in which any byte may change."""
    pairs = [(body, reply) for body in bodies for reply in replies]
    pairs += [(json.dumps(body), replies[0]) for body in bodies]
    return [json.dumps({"body": body, "reply": reply}).encode() for body, reply in pairs]


_FUNCTION: dict[str, Any] = {"name": "shell", "description": "runs", "parameters": _SCHEMA}
_OPENAI: list[dict[str, Any]] = [
    {
        "model": "policy",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "List."}]},
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ],
        "tools": [{"type": "function", "function": _FUNCTION}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "max_tokens": 100,
        "temperature": 0.7,
        "stop": ["STOP"],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}], "n": 1, "top_p": 1},
]
_RESPONSES: list[dict[str, Any]] = [
    {
        "model": "policy",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "List."}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command": "ls"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "ok"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            {"role": "user", "content": "More."},
        ],
        "tools": [
            {"type": "function", **_FUNCTION},
            {"type": "custom", "name": "patch"},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", **_FUNCTION}]},
        ],
        "tool_choice": "auto",
        "max_output_tokens": 100,
        "temperature": 0.7,
        "stream": True,
        "text": {"format": {"type": "text"}},
    },
    {"input": "Hello."},
]
_ANTHROPIC: list[dict[str, Any]] = [
    {
        "model": "policy",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "List."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "shell", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [{"name": "shell", "description": "runs", "input_schema": _SCHEMA}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["STOP"],
        "temperature": 0.7,
        "thinking": {"type": "enabled", "budget_tokens": 10},
        "stream": True,
    },
    {"max_tokens": 1, "messages": [{"role": "user", "content": "Hello."}]},
]
_ENDPOINT_REPLIES = [
    json.dumps(
        {
            "choices": [
                {
                    "message": {
                        "content": "I look.",
                        "tool_calls": [{"index": 0, "function": {"name": "shell", "arguments": '{"command": "ls"}'}}],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        }
    ),
    (
        'data: {"type": "content_block_delta", "index": 0, "delta": {"text": "a", "partial_json": "{}"}}\n'
        'data: {"type": "message_stop"}\n'
    ),
    json.dumps({"content": [{"type": "tool_use", "name": "shell", "input": {"command": "ls"}}], "type": "message"}),
    (
        'data: {"type": "response.completed", "response": {"output": [{"type": "function_call", "name": "a", '
        '"arguments": "{}"}, {"type": "message", "content": [{"text": "b"}]}], "usage": {"input_tokens": 1}}}\n'
    ),
]


def _api(name: str, read: Callable[[bytes], ApiCall], replies: ModuleType, bodies: list[dict[str, Any]]) -> FuzzTarget:
    errors = anthropic_replies if replies is anthropic_replies else openai_replies
    return FuzzTarget(
        name, InputKind.JSON, partial(_complete, read, replies, errors), partial(_exchanges, bodies, _REPLIES)
    )


TARGETS = [
    _api("gateway-chat-completions", openai_requests.read_openai_request, openai_replies, _OPENAI),
    _api("gateway-responses", responses_requests.read_responses_request, responses_replies, _RESPONSES),
    _api("gateway-messages", anthropic_requests.read_anthropic_request, anthropic_replies, _ANTHROPIC),
    FuzzTarget(
        "evaluation-relay",
        InputKind.JSON,
        _relay,
        partial(_exchanges, [_OPENAI[0], _RESPONSES[0], _ANTHROPIC[0]], _ENDPOINT_REPLIES),
    ),
]
