"""Types of the requests that OpenAI's responses API receives.

Field names are those of ``openai.types.responses.response_create_params``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from actors.gateway.api_types import Positive
from actors.gateway.chat_request import GatewayRequestError, UnseenPart, describe_json_error


class ResponsesInputText(msgspec.Struct, tag_field="type", tag="input_text"):
    text: str


class ResponsesEchoedText(msgspec.Struct, tag_field="type", tag="output_text"):
    text: str


class ResponsesRefusal(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


class ResponsesInputImage(UnseenPart, tag_field="type", tag="input_image"):
    what = "an image"


class ResponsesInputFile(UnseenPart, tag_field="type", tag="input_file"):
    what = "a file"


ResponsesPart = ResponsesInputText | ResponsesEchoedText | ResponsesRefusal | ResponsesInputImage | ResponsesInputFile
ResponsesContent = str | list[ResponsesPart]


class ResponsesMessageItem(msgspec.Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: ResponsesContent


class ResponsesFunctionCallItem(msgspec.Struct):
    name: str
    arguments: str | dict[str, object] | None
    call_id: str
    namespace: str | None = None


class ResponsesCustomCallItem(msgspec.Struct):
    name: str
    input: str
    call_id: str


class ResponsesOutputItem(msgspec.Struct):
    """The result of either kind of call."""

    call_id: str
    output: ResponsesContent


class ResponsesThought(msgspec.Struct):
    text: str


class ResponsesReasoningItem(msgspec.Struct):
    """Thoughts; encrypted ones are another model's, and left out."""

    summary: list[ResponsesThought] | None = None
    content: list[ResponsesThought] | None = None


ResponsesItem = (
    ResponsesMessageItem
    | ResponsesFunctionCallItem
    | ResponsesCustomCallItem
    | ResponsesOutputItem
    | ResponsesReasoningItem
)
_ITEMS: dict[str, type[ResponsesItem]] = {
    "message": ResponsesMessageItem,
    "function_call": ResponsesFunctionCallItem,
    "custom_tool_call": ResponsesCustomCallItem,
    "function_call_output": ResponsesOutputItem,
    "custom_tool_call_output": ResponsesOutputItem,
    "reasoning": ResponsesReasoningItem,
}


class _ItemType(msgspec.Struct):
    type: str = "message"


class ResponsesFunctionTool(msgspec.Struct, tag_field="type", tag="function"):
    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class ResponsesCustomTool(msgspec.Struct, tag_field="type", tag="custom"):
    name: str
    description: str | None = None


class ResponsesNamespace(msgspec.Struct, tag_field="type", tag="namespace"):
    """A group of functions, as Codex has."""

    name: str
    tools: list[ResponsesFunctionTool]


class ResponsesTextOptions(msgspec.Struct):
    format: dict[str, object] | None = None


class ResponsesRequest(msgspec.Struct):
    input: str | list[msgspec.Raw]
    model: str = ""
    instructions: str | None = None
    tools: list[ResponsesFunctionTool | ResponsesCustomTool | ResponsesNamespace] | None = None
    tool_choice: str | dict[str, object] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Positive | None = None
    temperature: float | None = None
    text: ResponsesTextOptions | None = None
    stream: bool | None = None


def decode_items(raw: Sequence[msgspec.Raw]) -> list[ResponsesItem]:
    found: list[ResponsesItem] = []
    for index, each in enumerate(raw):
        try:
            kind = msgspec.json.decode(each, type=_ItemType).type
            if kind not in _ITEMS:
                raise GatewayRequestError(f"input[{index}] is a {kind!r}, which is not supported", parameter="input")
            found.append(msgspec.json.decode(each, type=_ITEMS[kind]))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise GatewayRequestError(
                f"input[{index}] cannot be read: {describe_json_error(bytes(each), error)}", parameter="input"
            ) from error
    if not found:
        raise GatewayRequestError("input is empty: send the conversation", parameter="input")
    return found


def content_text(content: ResponsesContent) -> str:
    return content if isinstance(content, str) else "\n".join(map(_part_text, content))


def _part_text(part: ResponsesPart) -> str:
    match part:
        case ResponsesInputText() | ResponsesEchoedText() | UnseenPart():
            return part.text
        case ResponsesRefusal():
            return part.refusal
