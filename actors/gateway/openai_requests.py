"""Requests of OpenAI's chat completions.

Field names are those of ``openai.types.chat.completion_create_params``, which a test compares.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from actors.gateway.api_types import ApiCall, Positive, StopText, parse_tool_arguments
from actors.gateway.chat_request import ChatRequest, ChatTool, GatewayRequestError
from actors.gateway.request_options import RequestOptionRules
from actors.tokens.chat_format import ChatMessage

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
        "parallel_tool_calls": True,
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


OpenAIContent = str | list[OpenAITextPart | OpenAIRefusalPart] | None


class OpenAISystemMessage(msgspec.Struct, tag_field="role", tag="system"):
    content: OpenAIContent


class OpenAIDeveloperMessage(msgspec.Struct, tag_field="role", tag="developer"):
    content: OpenAIContent


class OpenAIUserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: OpenAIContent


class OpenAIToolMessage(msgspec.Struct, tag_field="role", tag="tool"):
    content: OpenAIContent


class OpenAIRequestFunctionCall(msgspec.Struct):
    name: str
    arguments: str


class OpenAIRequestToolCall(msgspec.Struct, tag_field="type", tag="function"):
    function: OpenAIRequestFunctionCall


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
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: float | None = None
    stop: StopText | list[StopText] | None = None
    stream: bool | None = None
    stream_options: OpenAIStreamOptions | None = None


def read_openai_request(body: bytes) -> ApiCall:
    """Read a request.  Raises :class:`GatewayRequestError`."""
    request = OPENAI_OPTIONS.read_request(body, OpenAIChatRequest)
    if request.tool_choice not in (None, "auto", "none"):
        raise GatewayRequestError(
            "a tool_choice that forces a call needs a grammar, with which the sampler draws from another distribution "
            'than the log-probabilities describe: use "auto" or "none"',
            parameter="tool_choice",
        )
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    tools = [tool.function for tool in request.tools or ()]
    return ApiCall(
        request=ChatRequest(
            messages=[_message(message) for message in request.messages],
            tools=tuple(ChatTool(each.name, each.description or "", each.parameters or {}) for each in tools),
            may_call=request.tool_choice != "none",
            max_tokens=request.max_completion_tokens or request.max_tokens,
            temperature=request.temperature,
            stop=tuple(stop),
            body_bytes=len(body),
        ),
        stream=bool(request.stream),
        usage_in_stream=bool(request.stream_options and request.stream_options.include_usage),
    )


def _message(message: OpenAIMessage) -> ChatMessage:
    match message:
        case OpenAISystemMessage() | OpenAIDeveloperMessage():
            return {"role": "system", "content": _text(message.content)}
        case OpenAIUserMessage():
            return {"role": "user", "content": _text(message.content)}
        case OpenAIToolMessage():
            return {"role": "tool", "content": _text(message.content)}
        case OpenAIAssistantMessage():
            if message.function_call is not None:
                raise GatewayRequestError("function_call is not supported: use tool_calls", parameter="messages")
            reply: ChatMessage = {"role": "assistant", "content": _text(message.content)}
            if message.reasoning_content:
                reply["reasoning_content"] = message.reasoning_content
            if message.tool_calls:
                functions = [call.function for call in message.tool_calls]
                reply["tool_calls"] = [
                    {
                        "type": "function",
                        "function": {"name": each.name, "arguments": parse_tool_arguments(each.arguments, each.name)},
                    }
                    for each in functions
                ]
            return reply


def _text(content: OpenAIContent) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if isinstance(part, OpenAITextPart) else part.refusal for part in content)
