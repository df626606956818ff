"""A session's conversations as token ids: what the next prompt is, and which segments come of it.  Pure.

Two questions, answered apart.  *Which ids are these messages?*  The longest beginning that was answered here before,
its reply included, is taken by its ids as they are, and only what comes after is rendered; a reply is recognised by
content and calls, whatever the harness makes of thoughts, white space around it and the order of an argument's keys.
*Where do these ids belong?*  Behind the segment that they go on from, all of it; else a new segment begins behind as
many tokens as they share with another, so that nothing is stored or trained twice.
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
    _branches: SegmentTree = field(default_factory=SegmentTree)
    _replies: dict[bytes, BranchPosition] = field(default_factory=dict[bytes, BranchPosition])
    """Digest of a conversation that ends with a reply → where its tokens are."""
    turns: list[ModelTurn] = field(default_factory=list[ModelTurn])
    """What was said.  What came of calls is the harness's to know."""

    @property
    def tokens(self) -> int:
        """In all segments."""
        return self._branches.token_count

    @property
    def turn_order(self) -> list[int]:
        """The turns as they stand in :meth:`segments`, by their numbers."""
        return self._branches.reply_order

    def render_prompt(
        self, chat: ChatFormat, tools: Sequence[ChatTool], messages: Sequence[ChatMessage]
    ) -> RenderedPrompt:
        """The ids that stand for ``messages``.  Raises UserError where the template has no way to say them."""
        conversations = [hashlib.sha256(_ENCODER.encode([tool.schema for tool in tools])).digest()]
        for message in messages:
            conversations.append(_with(conversations[-1], message))
        for known in range(len(messages) - 1, 0, -1):
            if (place := self._replies.get(conversations[known])) is not None:
                ids = self._branches.tokens_until(place)
                ids += chat.encode_delta(messages[known:], closed=ids[-1] == chat.turn_end_id)
                return RenderedPrompt(ids, conversations[-1])
        return RenderedPrompt(chat.encode_first_prompt(messages), conversations[-1])

    def count_new_tokens(self, prompt: RenderedPrompt) -> int:
        """Tokens of the prompt that no segment has yet."""
        return self._branches.count_new_tokens(prompt.ids)

    def add_reply(self, prompt: RenderedPrompt, reply: GenerateReply, told: ChatMessage, *, malformed: bool) -> None:
        """The engine answered ``prompt`` with ``reply``, and the harness was told it as ``told``."""
        place = self._branches.add_reply(prompt.ids, reply, malformed=malformed)
        self.turns.append(_turn(told, malformed=malformed))
        self._replies[_with(prompt.conversation, told)] = place

    def segments(self) -> tuple[Segment, ...]:
        return self._branches.segments()


def _turn(told: ChatMessage, *, malformed: bool) -> ModelTurn:
    thoughts = told.get("reasoning_content", "")
    calls = [call["function"] for call in told.get("tool_calls", ())]
    return ModelTurn(
        f"{thoughts}\n\n{told['content']}" if thoughts else told["content"],
        tuple(make_call_record(call["name"], call["arguments"]) for call in calls),
        malformed,
    )


def _with(conversation: bytes, message: ChatMessage) -> bytes:
    """Digest of a conversation that goes on with ``message``."""
    said: object = message
    if message["role"] == "assistant":
        calls = [call["function"] for call in message.get("tool_calls", ())]
        said = ["assistant", message["content"].strip(), calls]
    return hashlib.sha256(conversation + _ENCODER.encode(said)).digest()
