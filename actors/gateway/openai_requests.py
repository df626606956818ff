"""Requests of OpenAI's chat completions.

Field names are those of ``openai.types.chat.completion_create_params``, which a test compares.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from actors.gateway.api_types import ApiCall, Positive, StopText, parse_tool_arguments
from actors.gateway.chat_request import ChatRequest, ChatTool, GatewayRequestError, UnseenPart, refuse_opening_parts
from actors.gateway.request_options import RequestOptionRules, read_tool_choice
from actors.gateway.tool_results import IdentifiedMessage, order_tool_results
from actors.tokens.chat_messages import ChatMessage

OPENAI_OPTIONS = RequestOptionRules(
    harmless=frozenset(
        {
            "metadata", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed",
            "service_tier", "store", "user", "verbosity",
        }
    ),
    neutral={
        "audio": None,
        "frequency_penalty": 0,
        "function_call": None,
        "functions": None,
        "logit_bias": {},
        "logprobs": False,
        "min_p": 0,
        "modalities": ["text"],
        "n": 1,
        "prediction": None,
        "presence_penalty": 0,
        "repetition_penalty": 1,
        "response_format": {"type": "text"},
        "top_k": -1,
        "top_logprobs": 0,
        "top_p": 1,
        "web_search_options": None,
    },
)  # fmt: skip


class OpenAITextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class OpenAIRefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


class OpenAIImagePart(UnseenPart, tag_field="type", tag="image_url"):
    what = "an image"


class OpenAIAudioPart(UnseenPart, tag_field="type", tag="input_audio"):
    what = "a recording"


class OpenAIFilePart(UnseenPart, tag_field="type", tag="file"):
    what = "a file"


OpenAIPart = OpenAITextPart | OpenAIRefusalPart | OpenAIImagePart | OpenAIAudioPart | OpenAIFilePart
OpenAIContent = str | list[OpenAIPart] | None


class OpenAISystemMessage(msgspec.Struct, tag_field="role", tag="system"):
    content: OpenAIContent


class OpenAIDeveloperMessage(msgspec.Struct, tag_field="role", tag="developer"):
    content: OpenAIContent


class OpenAIUserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: OpenAIContent


class OpenAIToolMessage(msgspec.Struct, tag_field="role", tag="tool"):
    content: OpenAIContent
    tool_call_id: str | None = None


class OpenAIRequestFunctionCall(msgspec.Struct):
    name: str
    arguments: str | dict[str, object] | None


class OpenAIRequestToolCall(msgspec.Struct, tag_field="type", tag="function"):
    function: OpenAIRequestFunctionCall
    id: str | None = None


class OpenAIAssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    content: OpenAIContent = None
    tool_calls: list[OpenAIRequestToolCall] | None = None
    reasoning_content: str | None = None
    function_call: OpenAIRequestFunctionCall | None = None


OpenAIMessage = (
    OpenAISystemMessage | OpenAIDeveloperMessage | OpenAIUserMessage | OpenAIToolMessage | OpenAIAssistantMessage
)


class OpenAIFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class OpenAIFunctionTool(msgspec.Struct, tag_field="type", tag="function"):
    function: OpenAIFunction


class OpenAIStreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class OpenAIChatRequest(msgspec.Struct):
    messages: Annotated[list[OpenAIMessage], msgspec.Meta(min_length=1)]
    model: str = ""
    tools: list[OpenAIFunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, object] | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: float | None = None
    stop: StopText | list[StopText] | None = None
    stream: bool | None = None
    stream_options: OpenAIStreamOptions | None = None


def read_openai_request(body: bytes) -> ApiCall:
    """Read a request.  Raises :class:`GatewayRequestError`."""
    request = OPENAI_OPTIONS.read_request(body, OpenAIChatRequest)
    choice = read_tool_choice(request.tool_choice)
    contents = (
        None if isinstance(message, OpenAIAssistantMessage) else message.content or () for message in request.messages
    )
    refuse_opening_parts(contents)
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    tools = [tool.function for tool in request.tools or ()]
    return ApiCall(
        request=ChatRequest(
            messages=order_tool_results([_message(message) for message in request.messages]),
            tools=choice.select(ChatTool(each.name, each.description or "", each.parameters or {}) for each in tools),
            may_call=choice.may_call,
            one_call=request.parallel_tool_calls is False,
            max_tokens=request.max_completion_tokens or request.max_tokens,
            temperature=request.temperature,
            stop=tuple(stop),
        ),
        stream=bool(request.stream),
        usage_in_stream=bool(request.stream_options and request.stream_options.include_usage),
    )


def _message(message: OpenAIMessage) -> IdentifiedMessage:
    match message:
        case OpenAISystemMessage() | OpenAIDeveloperMessage():
            return IdentifiedMessage({"role": "system", "content": _text(message.content)})
        case OpenAIUserMessage():
            return IdentifiedMessage({"role": "user", "content": _text(message.content)})
        case OpenAIToolMessage():
            content = _text(message.content)
            return IdentifiedMessage({"role": "tool", "content": content}, result_of=message.tool_call_id or "")
        case OpenAIAssistantMessage():
            return _assistant_message(message)


def _assistant_message(message: OpenAIAssistantMessage) -> IdentifiedMessage:
    if message.function_call is not None:
        raise GatewayRequestError("function_call is not supported: use tool_calls", parameter="messages")
    reply: ChatMessage = {"role": "assistant", "content": _text(message.content)}
    if message.reasoning_content:
        reply["reasoning_content"] = message.reasoning_content
    calls = message.tool_calls or []
    if calls:
        reply["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": each.name, "arguments": parse_tool_arguments(each.arguments, each.name)},
            }
            for each in (call.function for call in calls)
        ]
    return IdentifiedMessage(reply, [call.id or "" for call in calls])


def _text(content: OpenAIContent) -> str:
    return content or "" if content is None or isinstance(content, str) else "\n".join(map(_part_text, content))


def _part_text(part: OpenAIPart) -> str:
    match part:
        case OpenAITextPart() | UnseenPart():
            return part.text
        case OpenAIRefusalPart():
            return part.refusal
