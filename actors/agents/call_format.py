"""The interface of a format of tool calls: how a family of models writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from actors.agents.agent import AgentAction, MalformedAction
from actors.tokens.reasoning import SplitReply


class ReadCalls(NamedTuple):
    """A reply after its thoughts, divided into calls and text."""

    actions: Sequence[AgentAction]
    """The calls in order, malformed ones included; empty if the reply calls nothing."""
    text: str
    """The text outside the calls."""


def malformed_reply(name: str, problem: str, text: str) -> ReadCalls:
    """Return a reply whose calls are not in the format ``name``."""
    reason = f"the calls are not in this model's format ({name}), and none was run: {problem}"
    return ReadCalls([MalformedAction(reason)], text)


class CallSpan(NamedTuple):
    """The place of a call in a reply, from its first character to the one after its last."""

    begin: int
    end: int


class CallFormat(Protocol):
    """A format of tool calls.  Pure."""

    @property
    def marks(self) -> Sequence[str]:
        """The texts with which calls may begin; a reply without any of them calls nothing.  Empty if nothing of a reply
        is certain before its end."""
        ...

    def split_thoughts(self, reply: str, *, opened: bool = False) -> SplitReply:
        """Divide a whole reply as :func:`actors.tokens.reasoning.split_reasoning` does."""
        ...

    def read(self, text: str, tools: Sequence[object]) -> ReadCalls:
        """Read a reply after its thoughts; ``tools`` are the schemas of the tools that it may call."""
        ...

    def find_first_call(self, text: str) -> CallSpan:
        """Return where the first call is in a reply whose calls can be read."""
        ...
