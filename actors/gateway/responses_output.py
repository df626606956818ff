"""Types of the replies and events that OpenAI's responses API sends.

Field names are those of ``openai.types.responses``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ResponsesStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponsesText(msgspec.Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class ResponsesReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    text: str


class ResponsesMessage(msgspec.Struct, tag_field="type", tag="message"):
    id: str
    content: list[ResponsesText]
    status: ResponsesStatus
    role: Literal["assistant"] = "assistant"


class ResponsesReasoning(msgspec.Struct, tag_field="type", tag="reasoning"):
    id: str
    content: list[ResponsesReasoningText]
    status: ResponsesStatus
    summary: tuple[()] = ()


class ResponsesFunctionCall(msgspec.Struct, tag_field="type", tag="function_call", omit_defaults=True):
    id: str
    call_id: str
    name: str
    arguments: str
    status: ResponsesStatus
    namespace: str | None = None


class ResponsesCustomCall(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    input: str
    status: ResponsesStatus


ResponsesOutput = ResponsesReasoning | ResponsesMessage | ResponsesFunctionCall | ResponsesCustomCall


class ResponsesInputDetails(msgspec.Struct):
    cached_tokens: int


class ResponsesOutputDetails(msgspec.Struct):
    reasoning_tokens: int = 0
    """Not counted."""


class ResponsesUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: ResponsesInputDetails
    output_tokens: int
    total_tokens: int
    output_tokens_details: ResponsesOutputDetails = msgspec.field(default_factory=ResponsesOutputDetails)


class ResponsesError(msgspec.Struct):
    code: Literal["server_error", "invalid_prompt"]
    message: str


class ResponsesIncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponsesBody(msgspec.Struct):
    """A response, finished or not."""

    id: str
    created_at: int
    model: str
    status: ResponsesStatus
    tools: list[dict[str, object]]
    tool_choice: Literal["auto", "none"]
    parallel_tool_calls: bool
    output: list[ResponsesOutput] = []
    usage: ResponsesUsage | None = None
    error: ResponsesError | None = None
    incomplete_details: ResponsesIncompleteDetails | None = None
    object: Literal["response"] = "response"


class ResponsesEvent(msgspec.Struct, omit_defaults=True):
    """An event of any type, with the fields that the type has."""

    type: str
    sequence_number: int = -1
    response: ResponsesBody | None = None
    item: ResponsesOutput | None = None
    part: ResponsesText | ResponsesReasoningText | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    logprobs: tuple[()] | None = None
