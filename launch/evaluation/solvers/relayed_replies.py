"""Reads the replies of a model at a URL: of OpenAI's chat and responses APIs and of Anthropic's, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

import msgspec

from actors.gateway.chat_request import ChatTool
from actors.rewards.episode_result import ModelTurn, ToolCallRecord, make_call_record
from actors.tokens.chat_messages import ToolCallMessage
from launch.evaluation.results.trainable_messages import RecordedMessage
from protocol.events import JsonValue
from protocol.run_directory.json_fields import Event, get_integer, get_list, get_mapping, get_text

_ENDS = {"message_stop", "response.completed", "response.incomplete"}
"""Types of the events with which a stream ends."""


def read_object(text: str | bytes) -> dict[str, object] | None:
    """Return a JSON object; None if the text is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_arguments(text: str) -> dict[str, object]:
    """Return a call's arguments as chat templates expect them; they are one text if they are no JSON object."""
    found = read_object(text or "{}")
    return ChatTool.text_arguments(text) if found is None else found


def write_arguments(given: object) -> str:
    """Return a call's arguments as text, which some endpoints and harnesses send as an object; empty for none."""
    if isinstance(given, str):
        return given
    return msgspec.json.encode(given).decode() if given else ""


@dataclass(slots=True)
class RelayedCall:
    """A call as the endpoint wrote it."""

    name: str = ""
    arguments: str = ""

    @property
    def record(self) -> ToolCallRecord:
        """The call's record; its command is all of its arguments if they are no JSON object."""
        found = read_object(self.arguments)
        return ToolCallRecord(self.name, self.arguments) if found is None else make_call_record(self.name, found)

    @property
    def message(self) -> ToolCallMessage:
        """The call as chat templates expect it."""
        return {"type": "function", "function": {"name": self.name, "arguments": read_arguments(self.arguments)}}

    @property
    def is_whole(self) -> bool:
        """False if the arguments are no JSON object, so that the message has others than the model wrote."""
        return read_object(self.arguments or "{}") is not None


@dataclass(slots=True)
class RelayedReply:
    """Text, calls and token counts of a reply, as far as the endpoint reports them."""

    text: str = ""
    thoughts: str = ""
    """The model's thoughts; empty if the endpoint does not report them apart from the text."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    calls: dict[int, RelayedCall] = field(default_factory=dict[int, RelayedCall])
    """The calls, by the index of the call or of its block."""
    has_end: bool = False
    """True if the endpoint said that the reply is complete."""

    @property
    def turn(self) -> ModelTurn:
        return ModelTurn(self.text, tuple(call.record for _, call in sorted(self.calls.items())))

    @property
    def message(self) -> RecordedMessage:
        """The reply in a conversation."""
        message: RecordedMessage = {"role": "assistant", "content": self.text}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = [call.message for _, call in sorted(self.calls.items())]
        if not all(call.is_whole for call in self.calls.values()):
            message["train"] = False
        return message

    def parse_body(self, body: bytes) -> None:
        lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
        for part in lines or [body]:
            if (value := read_object(part)) is not None:
                self._parse_object(cast("Event", value))

    def _parse_object(self, value: Event) -> None:
        self.has_end |= get_text(value, "type") in _ENDS
        for holder in (value, get_mapping(value, "message"), get_mapping(value, "response")):
            self._read_usage(get_mapping(holder, "usage"))
        for choice in _objects(get_list(value, "choices")):
            self.has_end |= bool(get_text(choice, "finish_reason"))
            self._read_chat(get_mapping(choice, "message"))
            self._read_chat(get_mapping(choice, "delta"))
        for index, block in enumerate(_objects(get_list(value, "content"))):
            self._read_block(index, block)
        index = get_integer(value, "index")
        self._read_block(index, get_mapping(value, "content_block"))
        self._read_block(index, get_mapping(value, "delta"))
        for index, item in enumerate(_output_items(value)):
            self._read_item(index, item)

    def _read_usage(self, usage: Event) -> None:
        """Take the counts of ``usage``; a later one replaces an earlier one."""
        self.prompt_tokens = get_integer(usage, "prompt_tokens", get_integer(usage, "input_tokens", self.prompt_tokens))
        sampled = get_integer(usage, "output_tokens", self.sampled_tokens)
        self.sampled_tokens = get_integer(usage, "completion_tokens", sampled)

    def _read_chat(self, message: Event) -> None:
        """Read a message of the chat API, or what a stream adds to it."""
        self.text += get_text(message, "content") + _part_texts(message, "content")
        self.thoughts += get_text(message, "reasoning_content") or get_text(message, "reasoning")
        for place, call in enumerate(_objects(get_list(message, "tool_calls"))):
            function = get_mapping(call, "function")
            index = get_integer(call, "index", place)
            self._add_call(index, get_text(function, "name"), write_arguments(function.get("arguments")))
        if function := get_mapping(message, "function_call"):  # the older form of a single call
            self._add_call(0, get_text(function, "name"), write_arguments(function.get("arguments")))

    def _read_block(self, index: int, block: Event) -> None:
        """Read a block of Anthropic's API, or what a stream adds to it."""
        self.text += get_text(block, "text")
        self.thoughts += get_text(block, "thinking")
        if get_text(block, "type") == "tool_use":
            self._add_call(index, get_text(block, "name"), write_arguments(block.get("input")))
        elif more := get_text(block, "partial_json"):
            self._add_call(index, "", more)

    def _read_item(self, index: int, item: Event) -> None:
        """Read an item of the responses API."""
        kind = get_text(item, "type")
        if kind == "message":
            self.text += _part_texts(item, "content")
        elif kind == "reasoning":
            self.thoughts += _part_texts(item, "content") or _part_texts(item, "summary")
        elif kind in {"function_call", "custom_tool_call"}:
            given = get_text(item, "arguments") or msgspec.json.encode({"input": get_text(item, "input")}).decode()
            self._add_call(index, get_text(item, "name"), given)

    def _add_call(self, index: int, name: str, arguments: str) -> None:
        call = self.calls.setdefault(index, RelayedCall())
        call.name += name
        call.arguments += arguments


def _objects(values: Iterable[JsonValue]) -> Iterator[Event]:
    return (value for value in values if isinstance(value, dict))


def _part_texts(item: Event, key: str) -> str:
    return "".join(get_text(part, "text") for part in _objects(get_list(item, key)))


def _output_items(value: Event) -> Iterator[Event]:
    """Yield the items of a response; of a stream only its last event has them all."""
    if get_text(value, "type") in _ENDS:
        value = get_mapping(value, "response")
    elif "response" in value:
        return
    yield from _objects(get_list(value, "output"))
