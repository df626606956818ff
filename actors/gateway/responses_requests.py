"""Requests of OpenAI's responses API, as far as agents use it: the whole conversation in ``input``, nothing is stored.

Field names are those of ``openai.types.responses.response_create_params``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from actors.gateway.api_types import ApiCall, parse_tool_arguments
from actors.gateway.chat_request import ChatRequest, ChatTool, GatewayRequestError, refuse_opening_parts
from actors.gateway.request_options import RequestOptionRules, read_tool_choice
from actors.gateway.responses_input import (
    ResponsesCustomCallItem,
    ResponsesCustomTool,
    ResponsesFunctionCallItem,
    ResponsesFunctionTool,
    ResponsesItem,
    ResponsesMessageItem,
    ResponsesNamespace,
    ResponsesOutputItem,
    ResponsesReasoningItem,
    ResponsesRequest,
    content_text,
    decode_items,
)
from actors.gateway.tool_results import IdentifiedMessage, order_tool_results
from actors.tokens.chat_messages import ChatMessage, ToolCallMessage

RESPONSES_OPTIONS = RequestOptionRules(
    harmless=frozenset(
        {
            "client_metadata", "include", "metadata", "prompt_cache_key", "prompt_cache_retention", "reasoning",
            "safety_identifier", "service_tier", "store", "stream_options", "user",
        }
    ),
    neutral={
        "background": False,
        "conversation": None,
        "max_tool_calls": None,
        "previous_response_id": None,
        "prompt": None,
        "top_logprobs": 0,
        "top_p": 1,
        "truncation": "disabled",
    },
)  # fmt: skip


def read_responses_request(body: bytes) -> ApiCall:
    """Read a request.  Raises :class:`GatewayRequestError`."""
    request = RESPONSES_OPTIONS.read_request(body, ResponsesRequest)
    items = (
        [ResponsesMessageItem("user", request.input)] if isinstance(request.input, str) else decode_items(request.input)
    )
    _check(request, items)
    choice = read_tool_choice(request.tool_choice)
    system: ChatMessage = {"role": "system", "content": request.instructions or ""}
    messages = [IdentifiedMessage(system)] if request.instructions else []
    return ApiCall(
        request=ChatRequest(
            messages=order_tool_results([*messages, *_messages(items)]),
            tools=choice.select(tool for given in request.tools or () for tool in _tools(given)),
            may_call=choice.may_call,
            one_call=request.parallel_tool_calls is False,
            max_tokens=request.max_output_tokens,
            temperature=request.temperature,
        ),
        stream=bool(request.stream),
    )


def _check(request: ResponsesRequest, items: Sequence[ResponsesItem]) -> None:
    if request.text and request.text.format and request.text.format.get("type") != "text":
        raise GatewayRequestError("text.format needs a grammar: leave it out", parameter="text")
    contents = (
        item.content if isinstance(item, ResponsesMessageItem) and item.role != "assistant" else None for item in items
    )
    refuse_opening_parts(contents, parameter="input")


def _tools(tool: ResponsesFunctionTool | ResponsesCustomTool | ResponsesNamespace) -> list[ChatTool]:
    match tool:
        case ResponsesFunctionTool():
            return [_function(tool)]
        case ResponsesCustomTool():
            return [ChatTool.taking_text(tool.name, tool.description or "")]
        case ResponsesNamespace():
            return [_function(each, tool.name) for each in tool.tools]


def _function(tool: ResponsesFunctionTool, namespace: str = "") -> ChatTool:
    name = _full_name(tool.name, namespace)
    return ChatTool(name, tool.description or "", tool.parameters or {}, namespace)


def _full_name(name: str, namespace: str | None) -> str:
    return f"{namespace}.{name}" if namespace else name


@dataclass(slots=True)
class _AssistantTurn:
    """Items of one reply."""

    texts: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: list[ToolCallMessage] = field(default_factory=list[ToolCallMessage])
    call_ids: list[str] = field(default_factory=list[str])

    def add_call(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        self.calls.append({"type": "function", "function": {"name": name, "arguments": arguments}})
        self.call_ids.append(call_id)

    def to_message(self) -> IdentifiedMessage:
        message: ChatMessage = {"role": "assistant", "content": "\n".join(self.texts)}
        if self.thoughts:
            message["reasoning_content"] = "\n".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = self.calls
        return IdentifiedMessage(message, self.call_ids)


def _messages(items: Sequence[ResponsesItem]) -> Iterator[IdentifiedMessage]:
    """Yield messages; consecutive items of the assistant are one."""
    turn: _AssistantTurn | None = None
    for item in items:
        if isinstance(item, ResponsesOutputItem) or (
            isinstance(item, ResponsesMessageItem) and item.role != "assistant"
        ):
            if turn:
                yield turn.to_message()
            turn = None
            yield _given_message(item)
        else:
            turn = turn or _AssistantTurn()
            _add_to_turn(turn, item)
    if turn:
        yield turn.to_message()


def _given_message(item: ResponsesMessageItem | ResponsesOutputItem) -> IdentifiedMessage:
    if isinstance(item, ResponsesOutputItem):
        return IdentifiedMessage({"role": "tool", "content": content_text(item.output)}, result_of=item.call_id)
    return IdentifiedMessage(
        {"role": "user" if item.role == "user" else "system", "content": content_text(item.content)}
    )


def _add_to_turn(turn: _AssistantTurn, item: ResponsesItem) -> None:
    match item:
        case ResponsesFunctionCallItem():
            name = _full_name(item.name, item.namespace)
            turn.add_call(item.call_id, name, parse_tool_arguments(item.arguments, name))
        case ResponsesCustomCallItem():
            turn.add_call(item.call_id, item.name, ChatTool.text_arguments(item.input))
        case ResponsesReasoningItem():
            turn.thoughts += [each.text for each in item.content or item.summary or ()]
        case ResponsesMessageItem():
            turn.texts.append(content_text(item.content))
        case ResponsesOutputItem():
            raise AssertionError
