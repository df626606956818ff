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

from actors.agents.chat import ChatFormat, Message
from actors.engines.messages import GenerateReply
from actors.gateway.asked import Tool
from actors.rewards.played import ModelTurn, call_of
from actors.tape import Tape
from protocol.trajectory import Segment, TurnKind

_ENCODER = msgspec.json.Encoder(order="deterministic")


class Prompt(NamedTuple):
    ids: list[int]
    conversation: bytes
    """Digest of tools and messages."""


class _Place(NamedTuple):
    """Behind the first ``end`` tokens of a branch, what came before it included."""

    branch: int
    end: int


@dataclass(slots=True)
class _Branch:
    before: list[int]
    """Tokens that precede its own: the first of its parent's."""
    parent: int
    tape: Tape = field(default_factory=Tape)
    turns: list[ModelTurn] = field(default_factory=list[ModelTurn])

    @property
    def whole(self) -> list[int]:
        return self.before + self.tape.token_ids


@dataclass(slots=True)
class History:
    _branches: list[_Branch] = field(default_factory=list[_Branch])
    _replies: dict[bytes, _Place] = field(default_factory=dict[bytes, _Place])
    """Digest of a conversation that ends with a reply → where its tokens are."""

    @property
    def tokens(self) -> int:
        """In all segments."""
        return sum(len(branch.tape.token_ids) for branch in self._branches)

    def prompt(self, chat: ChatFormat, tools: Sequence[Tool], messages: Sequence[Message]) -> Prompt:
        """The ids that stand for ``messages``.  Raises UserError where the template has no way to say them."""
        conversations = [hashlib.sha256(_ENCODER.encode([tool.schema for tool in tools])).digest()]
        for message in messages:
            conversations.append(_with(conversations[-1], message))
        for known in range(len(messages) - 1, 0, -1):
            if (place := self._replies.get(conversations[known])) is not None:
                ids = self._branches[place.branch].whole[: place.end]
                ids += chat.delta(messages[known:], closed=ids[-1] == chat.turn_end)
                return Prompt(ids, conversations[-1])
        return Prompt(chat.first_prompt(messages), conversations[-1])

    def new(self, prompt: Prompt) -> int:
        """Tokens of the prompt that no segment has yet."""
        return len(prompt.ids) - self._shared(prompt.ids)[1]

    def keep(self, prompt: Prompt, reply: GenerateReply, told: Message, *, malformed: bool) -> None:
        """The engine answered ``prompt`` with ``reply``, and the harness was told it as ``told``."""
        index, shared = self._shared(prompt.ids)
        if index < 0 or shared < len(self._branches[index].whole):
            self._branches.append(_Branch(prompt.ids[:shared], index))
            index = len(self._branches) - 1
        branch = self._branches[index]
        if added := prompt.ids[shared:]:
            branch.tape.given(TurnKind.OBSERVATION if shared else TurnKind.PROMPT, added)
        branch.tape.sampled(reply, malformed=malformed)
        branch.turns.append(_turn(told, malformed=malformed))
        self._replies[_with(prompt.conversation, told)] = _Place(index, len(branch.whole))

    def segments(self) -> tuple[Segment, ...]:
        """Each after its parent."""
        return tuple(branch.tape.segment(parent=branch.parent, offset=len(branch.before)) for branch in self._branches)

    def turns(self) -> tuple[ModelTurn, ...]:
        """What was said, in the order in which the model's turns stand in :meth:`segments`.  What came of calls is the
        harness's to know."""
        return tuple(turn for branch in self._branches for turn in branch.turns)

    def _shared(self, ids: list[int]) -> tuple[int, int]:
        """The branch with which ``ids`` share the longest beginning, and its length; a branch that is all of that comes
        first.  (−1, 0) where none shares any."""
        best = (0, False, -1)
        for index, branch in enumerate(self._branches):
            whole = branch.whole
            shared = _common(ids, whole)
            best = max(best, (shared, shared == len(whole), index) if shared else best)
        return best[2], best[0]


def _turn(told: Message, *, malformed: bool) -> ModelTurn:
    thoughts = told.get("reasoning_content", "")
    calls = [call["function"] for call in told.get("tool_calls", ())]
    return ModelTurn(
        f"{thoughts}\n\n{told['content']}" if thoughts else told["content"],
        tuple(call_of(call["name"], call["arguments"]) for call in calls),
        malformed,
    )


def _common(left: list[int], right: list[int]) -> int:
    """Length of the longest common beginning."""
    shortest = min(len(left), len(right))
    if left[:shortest] == right[:shortest]:
        return shortest
    return next(index for index in range(shortest) if left[index] != right[index])


def _with(conversation: bytes, message: Message) -> bytes:
    """Digest of a conversation that goes on with ``message``."""
    said: object = message
    if message["role"] == "assistant":
        calls = [call["function"] for call in message.get("tool_calls", ())]
        said = ["assistant", message["content"].strip(), calls]
    return hashlib.sha256(conversation + _ENCODER.encode(said)).digest()
