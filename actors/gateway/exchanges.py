"""The messages of a harness's session: what each request adds to an earlier reply, and the conversation of its work.
Pure.

A reply is recognised by its content and calls, even if the harness changes thoughts, surrounding white space, the order
of an argument's keys or how a number is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from actors.gateway.chat_request import ChatTool
from actors.tokens.chat_messages import ChatMessage

_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its reply."""

    continues: int | None
    """Number of the reply that the known part of the request ends with."""
    messages: Sequence[ChatMessage]
    """The messages after that reply."""
    reply: ChatMessage
    tools: Sequence[ChatTool]
    step: int = 0
    """Number of the task's step in which it was made."""


class WorkConversation(NamedTuple):
    """The conversation of the agent's work, with the tools that the harness offered to the model."""

    messages: list[ChatMessage]
    tools: Sequence[ChatTool] = ()
    gap: str = ""
    """Why there are replies alone; empty if the conversation is whole."""


def digest_tools(tools: Iterable[ChatTool]) -> bytes:
    """Return the digest of a conversation with ``tools`` and no message yet."""
    return hashlib.sha256(_ENCODER.encode([tool.schema for tool in tools])).digest()


def digest_with(conversation: bytes, message: ChatMessage) -> bytes:
    """Return the digest of a conversation continued with ``message``."""
    compared: object = message
    if message["role"] == "assistant":
        calls = _ENCODER.encode([call["function"] for call in message.get("tool_calls", ())])
        by_value: object = json.loads(calls, parse_int=_number, parse_float=_number)
        compared = ["assistant", message["content"].strip(), by_value]
    return hashlib.sha256(conversation + _ENCODER.encode(compared)).digest()


def digest_prefixes(tools: Iterable[ChatTool], messages: Iterable[ChatMessage]) -> list[bytes]:
    """Return the digests of a conversation's first 0, 1, … messages, the last of which is that of all."""
    digests = [digest_tools(tools)]
    for message in messages:
        digests.append(digest_with(digests[-1], message))
    return digests


def join_work(exchanges: Sequence[Exchange], work: Iterable[int]) -> WorkConversation:
    """Return the conversation that ends with the last reply of ``work``, the numbers of the agent's; of a task of
    several steps those of all, one after the other.

    Of a harness that shortens its history, what came before is not in it, nor is what helpers were told.
    """
    ends = {exchanges[number].step: number for number in work}
    messages: list[ChatMessage] = []
    for end in ends.values():
        parts: list[list[ChatMessage]] = []
        at: int | None = end
        while at is not None:
            exchange = exchanges[at]
            parts.append([*exchange.messages, exchange.reply])
            at = exchange.continues
        messages += (message for part in reversed(parts) for message in part)
    return WorkConversation(messages, exchanges[max(ends.values())].tools if ends else ())


def _number(text: str) -> float:
    """Return a number as JavaScript has it, which knows neither integers nor a negative zero in JSON."""
    return float(text) + 0.0
