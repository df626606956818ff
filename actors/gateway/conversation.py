"""A session's conversations as token ids: the next prompt, and the resulting segments.  Pure.

Rendering: the longest prefix of the messages that ends with a reply of this session keeps its token ids unchanged, and
only the rest is rendered.  A reply is recognised by its content and calls, even if the harness changes thoughts,
surrounding white space or the order of an argument's keys.  Placement: the ids extend the segment that they continue as
a whole; otherwise a new segment begins after the tokens that they share with another, so nothing is stored or trained
twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from actors.engines.messages import GenerateReply
from actors.gateway.chat_request import ChatTool
from actors.rewards.episode_result import ModelTurn, make_call_record
from actors.tokens.chat_format import ChatFormat, ChatMessage
from actors.tokens.segment_tree import BranchPosition, SegmentTree
from protocol.trajectory import Segment

_ENCODER = msgspec.json.Encoder(order="deterministic")


class RenderedPrompt(NamedTuple):
    ids: list[int]
    conversation: bytes
    """Digest of tools and messages."""


@dataclass(slots=True)
class ConversationHistory:
    """The segments and turns of one session."""

    _branches: SegmentTree = field(default_factory=SegmentTree)
    _replies: dict[bytes, BranchPosition] = field(default_factory=dict[bytes, BranchPosition])
    """Digest of a conversation that ends with a reply → where its tokens are."""
    turns: list[ModelTurn] = field(default_factory=list[ModelTurn])
    """The model's turns.  Results of calls are known only to the harness."""

    @property
    def tokens(self) -> int:
        """Number of tokens in all segments."""
        return self._branches.token_count

    @property
    def turn_order(self) -> list[int]:
        """Numbers of the turns in the order of :meth:`segments`."""
        return self._branches.reply_order

    def render_prompt(
        self, chat: ChatFormat, tools: Sequence[ChatTool], messages: Sequence[ChatMessage]
    ) -> RenderedPrompt:
        """Return the token ids of ``messages``.  Raises UserError if the template cannot render them."""
        conversations = [hashlib.sha256(_ENCODER.encode([tool.schema for tool in tools])).digest()]
        for message in messages:
            conversations.append(_digest_with(conversations[-1], message))
        for known in range(len(messages) - 1, 0, -1):
            if (position := self._replies.get(conversations[known])) is not None:
                ids = self._branches.tokens_until(position)
                ids += chat.encode_delta(messages[known:], closed=ids[-1] == chat.turn_end_id)
                return RenderedPrompt(ids, conversations[-1])
        return RenderedPrompt(chat.encode_first_prompt(messages), conversations[-1])

    def count_new_tokens(self, prompt: RenderedPrompt) -> int:
        """Return the number of prompt tokens that no segment has yet."""
        return self._branches.count_new_tokens(prompt.ids)

    def add_reply(self, prompt: RenderedPrompt, reply: GenerateReply, message: ChatMessage, *, malformed: bool) -> None:
        """Add the engine's ``reply`` to ``prompt``, which the harness gets as ``message``."""
        position = self._branches.add_reply(prompt.ids, reply, malformed=malformed)
        self.turns.append(_turn(message, malformed=malformed))
        self._replies[_digest_with(prompt.conversation, message)] = position

    def segments(self) -> tuple[Segment, ...]:
        return self._branches.segments()


def _turn(message: ChatMessage, *, malformed: bool) -> ModelTurn:
    thoughts = message.get("reasoning_content", "")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return ModelTurn(
        f"{thoughts}\n\n{message['content']}" if thoughts else message["content"],
        tuple(make_call_record(call["name"], call["arguments"]) for call in calls),
        malformed,
    )


def _digest_with(conversation: bytes, message: ChatMessage) -> bytes:
    """Return the digest of a conversation continued with ``message``."""
    compared: object = message
    if message["role"] == "assistant":
        calls = [call["function"] for call in message.get("tool_calls", ())]
        compared = ["assistant", message["content"].strip(), calls]
    return hashlib.sha256(conversation + _ENCODER.encode(compared)).digest()
