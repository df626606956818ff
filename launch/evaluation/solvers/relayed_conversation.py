"""Decides which replies of a model at a URL are the agent's work, as the gateway does.  Pure.

Token ids are unknown here, so a reply is recognised in a later request by its text.  The reply to a request that cannot
be read is work, in a conversation whose messages are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple

from actors.gateway.chat_request import ChatTool, GatewayRequestError
from actors.gateway.exchanges import Exchange, WorkConversation, digest_prefixes, digest_with, join_work
from actors.gateway.quotes import find_runs
from actors.gateway.reply_roles import AnsweredRequest, find_reply_roles
from actors.rewards.episode_result import ModelTurn
from actors.tokens.chat_messages import ChatMessage
from launch.evaluation.solvers.relayed_replies import RelayedReply
from launch.evaluation.solvers.relayed_requests import read_relayed_request
from protocol.trajectory import ReplyRole


class RelayedRequest(NamedTuple):
    facts: AnsweredRequest
    runs: set[str]
    """Runs of words of its messages (:mod:`actors.gateway.quotes`)."""
    new_messages: Sequence[ChatMessage] = ()
    """Its messages after the reply that it continues."""
    tools: Sequence[ChatTool] = ()
    refusal: str = ""
    """Why its messages are not known; empty if they are."""


class _EndedReply(NamedTuple):
    request: AnsweredRequest
    turn: ModelTurn
    runs: set[str]
    """Runs of words of its text that its own request has not."""
    exchange: Exchange
    refusal: str


@dataclass(slots=True)
class RelayedConversation:
    """The requests and replies of one attempt, in the order in which they ended."""

    step: int = 0
    """Number of the task's step that is being played."""
    _ended: list[_EndedReply] = field(default_factory=list[_EndedReply])
    _known: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Digest of a conversation that ends with a reply → the reply's number."""
    _tools: dict[bytes, Sequence[ChatTool]] = field(default_factory=dict[bytes, "Sequence[ChatTool]"])
    """Digest of a list of tools → the list, which every request has anew."""

    @property
    def all_turns(self) -> list[ModelTurn]:
        return [reply.turn for reply in self._ended]

    @property
    def turns(self) -> list[ModelTurn]:
        """The turns of the agent's work, as far as the requests show by now what it is."""
        return [self._ended[number].turn for number in self._work_numbers]

    @property
    def work(self) -> WorkConversation:
        """The messages of the agent's work; the replies alone if the last request of it, or of a step of the task,
        could not be read."""
        exchanges, numbers = [reply.exchange for reply in self._ended], self._work_numbers
        ends = {exchanges[number].step: self._ended[number] for number in numbers}
        if refusal := next((end.refusal for end in ends.values() if end.refusal), ""):
            return WorkConversation([exchanges[number].reply for number in numbers], gap=refusal)
        return join_work(exchanges, numbers)

    @property
    def _work_numbers(self) -> list[int]:
        roles = find_reply_roles([reply.request for reply in self._ended])
        return [number for number, role in enumerate(roles) if role is ReplyRole.WORK]

    def open_request(self, path: str, body: bytes) -> RelayedRequest:
        """Read a request to ``path``, without ``/v1``, before it is answered."""
        before = len(self._ended)
        try:
            request = read_relayed_request(path, body)
        except GatewayRequestError as error:
            facts = AnsweredRequest(
                conversation=sha256(body).digest(),
                offers_tools=False,
                system_prompt=(),
                has_replies=True,
                replies_before=before,
                continues=None,
                step=self.step,
            )
            return RelayedRequest(facts, set(), refusal=str(error))
        messages = request.messages
        digests = digest_prefixes(request.tools, messages)
        known = next((end for end in range(len(messages) - 1, 0, -1) if digests[end] in self._known), 0)
        runs = find_runs(message["content"] for message in messages)
        said = {message["content"].strip() for message in messages if message["role"] == "assistant"}
        facts = AnsweredRequest(
            conversation=digests[-1],
            offers_tools=bool(request.tools),
            system_prompt=tuple(
                message["content"] for message in takewhile(lambda message: message["role"] == "system", messages)
            ),
            has_replies=bool(said),
            replies_before=before,
            continues=self._known.get(digests[known]),
            quotes=frozenset(
                number
                for number, reply in enumerate(self._ended)
                if reply.turn.text.strip() in said or not reply.runs.isdisjoint(runs)
            ),
            step=self.step,
        )
        tools = self._tools.setdefault(digests[0], request.tools)
        return RelayedRequest(facts, runs, messages[known:], tools)

    def add_reply(self, request: RelayedRequest, reply: RelayedReply) -> None:
        turn, message = reply.turn, reply.message
        facts = replace(request.facts, gets_call=bool(turn.calls))
        exchange = Exchange(facts.continues, request.new_messages, message, request.tools, facts.step)
        self._known[digest_with(facts.conversation, message)] = len(self._ended)
        self._ended.append(_EndedReply(facts, turn, find_runs([turn.text]) - request.runs, exchange, request.refusal))
