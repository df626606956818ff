"""Decides which replies of a model at a URL are the agent's work, as the gateway does.  Pure.

Token ids are unknown here, so a reply is recognised in a later request by its text.  A request that the gateway would
refuse is not read; its reply is work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

import msgspec

from actors.gateway.anthropic_requests import read_anthropic_request
from actors.gateway.api_types import ApiCall
from actors.gateway.chat_request import ChatRequest, GatewayRequestError
from actors.gateway.openai_requests import read_openai_request
from actors.gateway.quotes import find_runs
from actors.gateway.reply_roles import AnsweredRequest, find_reply_roles
from actors.gateway.responses_requests import read_responses_request
from actors.rewards.episode_result import ModelTurn
from launch.evaluation.solvers.relayed_replies import RelayedReply
from protocol.trajectory import ReplyRole

_READERS: Mapping[str, Callable[[bytes], ApiCall]] = {
    "chat/completions": read_openai_request,
    "responses": read_responses_request,
    "messages": read_anthropic_request,
}


class RelayedRequest(NamedTuple):
    facts: AnsweredRequest
    runs: set[str]
    """Runs of words of its messages (:mod:`actors.gateway.quotes`)."""


class _EndedReply(NamedTuple):
    request: AnsweredRequest
    turn: ModelTurn
    runs: set[str]
    """Runs of words of its text that its own request has not."""


@dataclass(slots=True)
class RelayedConversation:
    """The requests and replies of one attempt, in the order in which they ended."""

    _ended: list[_EndedReply] = field(default_factory=list[_EndedReply])

    @property
    def all_turns(self) -> list[ModelTurn]:
        return [reply.turn for reply in self._ended]

    @property
    def turns(self) -> list[ModelTurn]:
        """The turns of the agent's work, as far as the requests show by now what it is."""
        roles = find_reply_roles([reply.request for reply in self._ended])
        return [reply.turn for reply, role in zip(self._ended, roles, strict=True) if role is ReplyRole.WORK]

    def open_request(self, path: str, body: bytes) -> RelayedRequest:
        """Read a request to ``path``, without ``/v1``, before it is answered."""
        before = len(self._ended)
        if (request := _read(path, body)) is None:
            facts = AnsweredRequest(
                conversation=hashlib.sha256(body).digest(),
                offers_tools=False,
                system_prompt=(),
                has_replies=True,
                replies_before=before,
                continues=None,
            )
            return RelayedRequest(facts, set())
        messages = request.messages
        runs = find_runs(message["content"] for message in messages)
        said = {message["content"].strip() for message in messages if message["role"] == "assistant"}
        facts = AnsweredRequest(
            conversation=hashlib.sha256(msgspec.json.encode([request.tools, messages])).digest(),
            offers_tools=bool(request.tools),
            system_prompt=tuple(
                message["content"] for message in takewhile(lambda message: message["role"] == "system", messages)
            ),
            has_replies=bool(said),
            replies_before=before,
            continues=None,
            quotes=frozenset(
                number
                for number, reply in enumerate(self._ended)
                if reply.turn.text.strip() in said or not reply.runs.isdisjoint(runs)
            ),
        )
        return RelayedRequest(facts, runs)

    def add_reply(self, request: RelayedRequest, reply: RelayedReply) -> None:
        turn = reply.turn
        facts = replace(request.facts, gets_call=bool(turn.calls))
        self._ended.append(_EndedReply(facts, turn, find_runs([turn.text]) - request.runs))


def _read(path: str, body: bytes) -> ChatRequest | None:
    if (read := _READERS.get(path)) is None:
        return None
    try:
        return read(body).request
    except GatewayRequestError:
        return None
