"""OpenAI's chat completions: what is asked.

The field names are those of ``openai.types.chat.completion_create_params``; a test holds the names below against it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from actors.agents.chat import Message
from actors.gateway.api import Call, Positive, StopText, arguments_of
from actors.gateway.asked import Asked, Refused, Tool
from actors.gateway.options import Options

OPTIONS = Options(
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


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


Content = str | list[TextPart | RefusalPart] | None


class SystemMessage(msgspec.Struct, tag_field="role", tag="system"):
    content: Content


class DeveloperMessage(msgspec.Struct, tag_field="role", tag="developer"):
    content: Content


class UserMessage(msgspec.Struct, tag_field="role", tag="user"):
    content: Content


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool"):
    content: Content


class CalledFunction(msgspec.Struct):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, tag_field="type", tag="function"):
    function: CalledFunction


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    content: Content = None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None
    function_call: CalledFunction | None = None


AnyMessage = SystemMessage | DeveloperMessage | UserMessage | ToolMessage | AssistantMessage


class Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class FunctionTool(msgspec.Struct, tag_field="type", tag="function"):
    function: Function


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Request(msgspec.Struct):
    messages: Annotated[list[AnyMessage], msgspec.Meta(min_length=1)]
    model: str = ""
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, object] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: float | None = None
    stop: StopText | list[StopText] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


def read(body: bytes) -> Call:
    """Raises :class:`Refused`."""
    request = OPTIONS.read(body, Request)
    if request.tool_choice not in (None, "auto", "none"):
        raise Refused(
            "a tool_choice that forces a call needs a grammar, under which the sampler draws from another distribution "
            'than the log-probabilities tell of: say "auto", or "none"',
            parameter="tool_choice",
        )
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    tools = [tool.function for tool in request.tools or ()]
    return Call(
        asked=Asked(
            messages=[_message(message) for message in request.messages],
            tools=tuple(Tool(each.name, each.description or "", each.parameters or {}) for each in tools),
            may_call=request.tool_choice != "none",
            max_tokens=request.max_completion_tokens or request.max_tokens,
            temperature=request.temperature,
            stop=tuple(stop),
            size=len(body),
        ),
        stream=bool(request.stream),
        usage_in_stream=bool(request.stream_options and request.stream_options.include_usage),
    )


def _message(message: AnyMessage) -> Message:
    match message:
        case SystemMessage() | DeveloperMessage():
            return {"role": "system", "content": _text(message.content)}
        case UserMessage():
            return {"role": "user", "content": _text(message.content)}
        case ToolMessage():
            return {"role": "tool", "content": _text(message.content)}
        case AssistantMessage():
            if message.function_call is not None:
                raise Refused("function_call is not taken: say it as tool_calls", parameter="messages")
            said: Message = {"role": "assistant", "content": _text(message.content)}
            if message.reasoning_content:
                said["reasoning_content"] = message.reasoning_content
            if message.tool_calls:
                functions = [call.function for call in message.tool_calls]
                said["tool_calls"] = [
                    {
                        "type": "function",
                        "function": {"name": each.name, "arguments": arguments_of(each.arguments, each.name)},
                    }
                    for each in functions
                ]
            return said


def _text(content: Content) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)
