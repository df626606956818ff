"""Replies of OpenAI's responses API, whole and as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from actors.agents.agent import AgentToolCall
from actors.gateway.api_types import ApiCall, ResponseMetadata, encode_json
from actors.gateway.chat_request import ChatTool, GatewayRequestError
from actors.gateway.completion import CompletionEndReason, GatewayCompletion, ParsedCompletion
from actors.gateway.responses_output import (
    ResponsesBody,
    ResponsesCustomCall,
    ResponsesError,
    ResponsesEvent,
    ResponsesFunctionCall,
    ResponsesIncompleteDetails,
    ResponsesInputDetails,
    ResponsesMessage,
    ResponsesOutput,
    ResponsesReasoning,
    ResponsesReasoningText,
    ResponsesStatus,
    ResponsesText,
    ResponsesUsage,
)


def encode_reply(call: ApiCall, answer: GatewayCompletion, named: ResponseMetadata) -> bytes:
    return encode_json(_finished(call, answer, named))


class ResponsesStreamEncoder:
    """See :class:`actors.gateway.api_types.StreamEncoder`."""

    ping = b": ping\n\n"

    def __init__(self, call: ApiCall, named: ResponseMetadata) -> None:
        self._call, self._named = call, named
        self._events = 0
        self._sent: list[int] = []
        """Characters sent of each item; all but the last item are complete."""

    def encode_partial(self, parsed: ParsedCompletion, prompt_tokens: int) -> bytes:
        del prompt_tokens  # it is in the usage at the end
        items = _output(self._call, parsed, self._named, "in_progress")
        return self._encoded(self._grown([item for item in items if _text(item)]))

    def encode_end(self, answer: GatewayCompletion) -> bytes:
        response = _finished(self._call, answer, self._named)
        data = self._encoded(self._grown(response.output))
        last = len(response.output) - 1
        done = ResponsesEvent(f"response.{response.status}", response=response)
        return data + self._encoded([*_end(last, response.output[last]), done])

    def encode_failure(self, refused: GatewayRequestError) -> bytes:
        response = _body(self._call, self._named, "failed")
        response.error = ResponsesError("server_error" if refused.status >= 500 else "invalid_prompt", str(refused))
        return self._encoded([ResponsesEvent("response.failed", response=response)])

    def _grown(self, items: list[ResponsesOutput]) -> Iterator[ResponsesEvent]:
        """Yield the events that extend the items sent so far to ``items``."""
        if items and not self._events:
            for kind in ("response.created", "response.in_progress"):
                yield ResponsesEvent(kind, response=_body(self._call, self._named, "in_progress"))
        for index, item in enumerate(items):
            if index == len(self._sent):
                if index:
                    yield from _end(index - 1, items[index - 1])
                yield from _begin(index, item)
                self._sent.append(0)
            if new := _text(item)[self._sent[index] :]:
                yield _delta(index, item, new)
                self._sent[index] += len(new)

    def _encoded(self, events: Iterable[ResponsesEvent]) -> bytes:
        data = b""
        for event in events:
            event.sequence_number = self._events
            self._events += 1
            data += b"event: %b\ndata: %b\n\n" % (event.type.encode(), encode_json(event))
        return data


def stream_encoder(call: ApiCall, named: ResponseMetadata) -> ResponsesStreamEncoder:
    return ResponsesStreamEncoder(call, named)


def _text(item: ResponsesOutput) -> str:
    """Return the text that is streamed."""
    match item:
        case ResponsesReasoning() | ResponsesMessage():
            return item.content[0].text
        case ResponsesFunctionCall():
            return item.arguments
        case ResponsesCustomCall():
            return item.input


def _begin(index: int, item: ResponsesOutput) -> Iterator[ResponsesEvent]:
    added = ResponsesEvent("response.output_item.added", output_index=index)
    match item:
        case ResponsesReasoning() | ResponsesMessage():
            added.item = msgspec.structs.replace(item, content=[], status="in_progress")
            yield added
            part = msgspec.structs.replace(item.content[0], text="")
            yield ResponsesEvent(
                "response.content_part.added", item_id=item.id, output_index=index, content_index=0, part=part
            )
        case ResponsesFunctionCall():
            added.item = msgspec.structs.replace(item, arguments="", status="in_progress")
            yield added
        case ResponsesCustomCall():
            added.item = msgspec.structs.replace(item, input="", status="in_progress")
            yield added


def _delta(index: int, item: ResponsesOutput, new: str) -> ResponsesEvent:
    event = ResponsesEvent("", item_id=item.id, output_index=index, delta=new)
    match item:
        case ResponsesReasoning():
            event.type, event.content_index = "response.reasoning_text.delta", 0
        case ResponsesMessage():
            event.type, event.content_index, event.logprobs = "response.output_text.delta", 0, ()
        case ResponsesFunctionCall():
            event.type = "response.function_call_arguments.delta"
        case ResponsesCustomCall():
            event.type = "response.custom_tool_call_input.delta"
    return event


def _end(index: int, item: ResponsesOutput) -> Iterator[ResponsesEvent]:
    event = ResponsesEvent("", item_id=item.id, output_index=index)
    match item:
        case ResponsesReasoning():
            event.type, event.content_index, event.text = "response.reasoning_text.done", 0, _text(item)
        case ResponsesMessage():
            event.type, event.content_index, event.text = "response.output_text.done", 0, _text(item)
            event.logprobs = ()
        case ResponsesFunctionCall():
            event.type, event.name = "response.function_call_arguments.done", item.name
            event.arguments = item.arguments
        case ResponsesCustomCall():
            event.type, event.input = "response.custom_tool_call_input.done", item.input
    yield event
    if isinstance(item, ResponsesReasoning | ResponsesMessage):
        part = item.content[0]
        yield ResponsesEvent(
            "response.content_part.done", item_id=item.id, output_index=index, content_index=0, part=part
        )
    done = msgspec.structs.replace(item, status="completed") if item.status == "in_progress" else item
    yield ResponsesEvent("response.output_item.done", output_index=index, item=done)


def _body(call: ApiCall, named: ResponseMetadata, status: ResponsesStatus) -> ResponsesBody:
    request = call.request
    return ResponsesBody(
        id=f"resp_{named.id}",
        created_at=named.created,
        model=named.model,
        status=status,
        tools=[_tool(tool) for tool in request.tools],
        tool_choice="auto" if request.may_call else "none",
        parallel_tool_calls=not request.one_call,
    )


def _finished(call: ApiCall, answer: GatewayCompletion, named: ResponseMetadata) -> ResponsesBody:
    is_cut = answer.end_reason is CompletionEndReason.LENGTH
    response = _body(call, named, "incomplete" if is_cut else "completed")
    response.incomplete_details = ResponsesIncompleteDetails() if is_cut else None
    response.output = list(_output(call, answer.parsed, named, response.status))
    prompt, sampled = answer.prompt_tokens, answer.sampled_tokens
    response.usage = ResponsesUsage(prompt, ResponsesInputDetails(answer.cached_tokens), sampled, prompt + sampled)
    return response


def _output(
    call: ApiCall, parsed: ParsedCompletion, named: ResponseMetadata, status: ResponsesStatus
) -> Iterator[ResponsesOutput]:
    if parsed.thoughts:
        yield ResponsesReasoning(f"rs_{named.id}", [ResponsesReasoningText(parsed.thoughts)], status)
    if parsed.content or not parsed.tool_calls:
        yield ResponsesMessage(f"msg_{named.id}", [ResponsesText(parsed.content)], status)
    tools = {tool.name: tool for tool in call.request.tools}
    for index, each in enumerate(parsed.tool_calls):
        yield _call(each, tools.get(each.name), named.tool_call_id(index), status)


def _call(call: AgentToolCall, tool: ChatTool | None, call_id: str, status: ResponsesStatus) -> ResponsesOutput:
    if tool and tool.takes_text:
        given = ChatTool.given_text(call.arguments)
        return ResponsesCustomCall(f"ctc_{call_id}", f"call_{call_id}", call.name, given, status)
    arguments = msgspec.json.encode(call.arguments).decode()
    namespace = tool.namespace if tool else ""
    name = call.name.removeprefix(f"{namespace}.") if namespace else call.name
    return ResponsesFunctionCall(f"fc_{call_id}", f"call_{call_id}", name, arguments, status, namespace or None)


def _tool(tool: ChatTool) -> dict[str, object]:
    if tool.takes_text:
        return {"type": "custom", "name": tool.name, "description": tool.description}
    schema: dict[str, object] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "strict": False, **schema}
