"""Puts the results of tool calls into the order of their calls, because chat templates show no ids.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actors.gateway.chat_request import GatewayRequestError
from actors.tokens.chat_messages import ChatMessage


class IdentifiedMessage(NamedTuple):
    """A message and the ids of the calls in it."""

    message: ChatMessage
    calls: Sequence[str] = ()
    """Ids of the assistant's calls; an empty one if the harness gives none."""
    result_of: str = ""
    """Id of the call whose result the message is; empty if it is none, or names none."""


def order_tool_results(messages: Sequence[IdentifiedMessage]) -> list[ChatMessage]:
    """Return the messages with the results of each reply in the order of its calls; others keep their places.
    Assistant messages without another one between them are one reply, as Anthropic takes them.

    Raises :class:`GatewayRequestError` for a result of no call, a second one of the same call, one that does not name
    which of several calls it is of, or if only some of a reply's calls have one."""
    ordered = [each.message for each in messages]
    calls: Sequence[str] = ()
    results: dict[str, int] = {}
    """Id → place of the result."""

    def place_results() -> None:
        if results and (missing := [call for call in calls if call not in results]):
            raise _error(f"call {missing[0]!r} has no result, but another call of the same reply has one")
        for place, call in zip(sorted(results.values()), calls, strict=False):
            ordered[place] = messages[results[call]].message
        results.clear()

    for index, each in enumerate(messages):
        if each.message["role"] == "assistant":
            if index and messages[index - 1].message["role"] == "assistant":
                calls = [*calls, *each.calls]
            else:
                place_results()
                calls = each.calls
        elif each.message["role"] == "tool" and not each.result_of and all(calls) and len(calls) > 1:
            raise _error(f"a result names no call, and the reply before it has {len(calls)}")
        elif each.result_of and all(calls):
            if each.result_of not in calls:
                raise _error(f"a result names call {each.result_of!r}, which the reply before it does not have")
            if each.result_of in results:
                raise _error(f"call {each.result_of!r} has two results")
            results[each.result_of] = index
    place_results()
    return ordered


def _error(what: str) -> GatewayRequestError:
    return GatewayRequestError(f"{what}: send one result for each call, under its id", parameter="messages")
