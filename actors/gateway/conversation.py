"""A session's conversations as token ids: the next prompt, and the resulting segments.  Pure.

Rendering: the longest prefix of the messages that ends with a reply of this session keeps its token ids unchanged, and
only the rest is rendered (:mod:`.exchanges` recognises a reply).  Placement: the ids extend the segment that they
continue as a whole; otherwise a new segment begins after the tokens that they share with another, so nothing is stored
or trained twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from actors.engines.messages import GenerateReply
from actors.gateway.chat_request import ChatTool
from actors.gateway.exchanges import Exchange, WorkConversation, digest_prefixes, digest_with, join_work
from actors.gateway.quotes import find_runs
from actors.gateway.reply_roles import AnsweredRequest, find_reply_roles, mark_roles
from actors.rewards.episode_result import ModelTurn, make_call_record
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from actors.tokens.segment_tree import BranchPosition, SegmentTree
from protocol.trajectory import ReplyRole, Segment


class RenderedPrompt(NamedTuple):
    ids: list[int]
    request: AnsweredRequest
    messages: Sequence[ChatMessage]
    new_messages: Sequence[ChatMessage]
    """Those after the reply that it continues."""
    tools: Sequence[ChatTool]


class _KnownReply(NamedTuple):
    number: int
    position: BranchPosition
    calls: Sequence[ToolCallMessage]


class _EndedReply(NamedTuple):
    request: AnsweredRequest
    turn: ModelTurn
    exchange: Exchange


@dataclass(slots=True)
class ConversationHistory:
    """The segments and replies of one session.  Results of calls are known only to the harness."""

    untrained: frozenset[ReplyRole] = frozenset()
    """Roles whose replies have no loss."""
    step: int = 0
    """Number of the task's step that is being played."""
    _branches: SegmentTree = field(default_factory=SegmentTree)
    _replies: dict[bytes, _KnownReply] = field(default_factory=dict[bytes, _KnownReply])
    """Digest of a conversation that ends with a reply → the reply, and where its tokens are."""
    _ended: list[_EndedReply] = field(default_factory=list[_EndedReply])
    _quotable: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """Number of a reply that is work only if it is used → the runs of words by which a quote of it is recognised."""
    _tools: dict[bytes, Sequence[ChatTool]] = field(default_factory=dict[bytes, "Sequence[ChatTool]"])
    """Digest of a list of tools → the list, which every request has anew."""

    @property
    def tokens(self) -> int:
        """Number of tokens in all segments."""
        return self._branches.token_count

    @property
    def all_turns(self) -> list[ModelTurn]:
        """The turns of all replies, whatever their roles, in the order in which they ended."""
        return [reply.turn for reply in self._ended]

    @property
    def turns(self) -> list[ModelTurn]:
        """The turns of the agent's work, as far as the session shows by now what it is: later ones may be fewer."""
        return [self._ended[number].turn for number in self._work]

    @property
    def turn_order(self) -> list[int]:
        """Numbers of the turns of the agent's work in the order of :meth:`segments`."""
        ranks = {number: rank for rank, number in enumerate(self._work)}
        return [ranks[number] for number in self._branches.reply_order if number in ranks]

    @property
    def last_content(self) -> str:
        """The last reply of the agent's work without thoughts and calls; empty before the first."""
        return self._ended[self._work[-1]].exchange.reply["content"] if self._ended else ""

    @property
    def work(self) -> WorkConversation:
        """The messages of the agent's work, as far as the session shows by now what it is."""
        return join_work([reply.exchange for reply in self._ended], self._work)

    def render_prompt(
        self, chat: ChatFormat, tools: Sequence[ChatTool], messages: Sequence[ChatMessage]
    ) -> RenderedPrompt:
        """Return the token ids of ``messages``.  Raises UserError if the template cannot render them."""
        conversations = digest_prefixes(tools, messages)
        known = next((end for end in range(len(messages) - 1, 0, -1) if conversations[end] in self._replies), 0)
        reply = self._replies[conversations[known]] if known else None
        if reply is None:
            ids = chat.encode_first_prompt(messages)
        else:
            ids = self._branches.tokens_until(reply.position)
            ids += chat.encode_next(ids[-1], _name_results(messages[known:], reply.calls))
        runs = find_runs(_contents(messages[known:])) if self._quotable else set[str]()
        request = AnsweredRequest(
            conversation=conversations[-1],
            offers_tools=bool(tools),
            system_prompt=tuple(each["content"] for each in takewhile(_is_system, messages)),
            has_replies=any(message["role"] == "assistant" for message in messages),
            replies_before=len(self._ended),
            continues=None if reply is None else reply.number,
            quotes=frozenset(number for number, own in self._quotable.items() if not own.isdisjoint(runs)),
            step=self.step,
        )
        offered = self._tools.setdefault(conversations[0], tools)
        return RenderedPrompt(ids, request, messages, messages[known:], offered)

    def count_new_tokens(self, prompt: RenderedPrompt) -> int:
        """Return the number of prompt tokens that no segment has yet."""
        return self._branches.count_new_tokens(prompt.ids)

    def add_reply(self, prompt: RenderedPrompt, reply: GenerateReply, message: ChatMessage, *, malformed: bool) -> None:
        """Add the engine's ``reply`` to ``prompt``, which the harness gets as ``message``."""
        number, content = len(self._ended), message["content"]
        request = replace(prompt.request, gets_call="tool_calls" in message)
        exchange = Exchange(request.continues, prompt.new_messages, message, prompt.tools, request.step)
        ended = _EndedReply(request, _turn(message, malformed=malformed), exchange)
        digest = digest_with(request.conversation, message)
        position = self._branches.add_reply(prompt.ids, reply, malformed=malformed)
        self._ended.append(ended)
        self._replies[digest] = _KnownReply(number, position, message.get("tool_calls", ()))
        if not request.gets_call and (request.offers_tools or not request.has_replies):
            self._quotable[number] = find_runs([content]) - find_runs(_contents(prompt.messages))

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments, with the role of each reply as far as the session shows it by now."""
        roles = self._roles
        order = (roles[number] for number in self._branches.reply_order)
        return mark_roles(self._branches.segments(), order, self.untrained)

    @property
    def _roles(self) -> list[ReplyRole]:
        return find_reply_roles([reply.request for reply in self._ended])

    @property
    def _work(self) -> list[int]:
        """Numbers of the replies that are the agent's work."""
        return [number for number, role in enumerate(self._roles) if role is ReplyRole.WORK]


def _name_results(messages: Sequence[ChatMessage], calls: Sequence[ToolCallMessage]) -> list[ChatMessage]:
    """Return messages in which the results, which are in the order of ``calls``, have the names and ids of these."""
    following = iter(calls)
    return [_name_result(each, next(following, None)) if each["role"] == "tool" else each for each in messages]


def _name_result(result: ChatMessage, call: ToolCallMessage | None) -> ChatMessage:
    if call is None:
        return result
    return {**result, "name": call["function"]["name"], "tool_call_id": call.get("id", "")}


def _turn(message: ChatMessage, *, malformed: bool) -> ModelTurn:
    thoughts = message.get("reasoning_content", "")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return ModelTurn(
        f"{thoughts}\n\n{message['content']}" if thoughts else message["content"],
        tuple(make_call_record(call["name"], call["arguments"]) for call in calls),
        malformed,
    )


def _is_system(message: ChatMessage) -> bool:
    return message["role"] == "system"


def _contents(messages: Sequence[ChatMessage]) -> Iterator[str]:
    return (message["content"] for message in messages)
