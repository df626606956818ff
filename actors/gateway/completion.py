"""Parses sampled token ids into a completion.  Pure.

The model writes Hermes tool calls and, if it thinks, ``<think>…</think>``.  Thoughts, calls and text are separated; a
call that does not parse is returned as text.  The engine has no stop texts: a reply is cut after the token that
completes the first of them, where a sampler with stop texts would have stopped, so the kept tokens have the right
log-probabilities.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from actors.agents.hermes import AgentToolCall, FinalReply, parse_tool_calls, text_outside_calls
from actors.engines.messages import GenerateReply
from actors.tokens.chat_format import ChatMessage
from actors.tokens.reasoning import split_reasoning


class CompletionEndReason(StrEnum):
    """Reason why a reply ended."""

    END_OF_TURN = "turn"
    """The model ended its turn."""
    TOOL_CALLS = "calls"
    """The model ended its turn with tool calls."""
    STOP_TEXT = "stop_text"
    LENGTH = "length"
    """The maximum number of tokens was sampled."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A reply divided into thoughts, content and tool calls."""

    thoughts: str
    content: str
    tool_calls: tuple[AgentToolCall, ...]
    malformed: bool
    """True if a call did not parse, so that the content is the whole reply."""

    @property
    def message(self) -> ChatMessage:
        """The reply as a chat message."""
        message: ChatMessage = {"role": "assistant", "content": self.content}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.tool_calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCompletion:
    parsed: ParsedCompletion
    end_reason: CompletionEndReason
    stop_text: str | None
    """The requested stop text that ended the reply, if any."""
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int
    """Prompt tokens that were cached in the engine."""


def cut_at_stop(
    reply: GenerateReply, stops: Sequence[str], text_of: Callable[[Sequence[int]], str]
) -> tuple[GenerateReply, str, str | None]:
    """Return the reply up to the token that completes the first of ``stops``, its text before that stop, and the stop;
    the whole reply and None if none occurs."""

    def has_stop(count: int) -> bool:
        text = text_of(reply.token_ids[:count])
        return any(stop in text for stop in stops)

    whole = len(reply.token_ids)
    if not has_stop(whole):
        return reply, text_of(reply.token_ids), None
    count = bisect.bisect_left(range(whole + 1), True, key=has_stop)
    text = text_of(reply.token_ids[:count])
    at, stop = min((text.index(stop), stop) for stop in stops if stop in text)
    kept = slice(count)
    shorter = replace(
        reply,
        token_ids=reply.token_ids[kept],
        logprobs=reply.logprobs[kept],
        versions=reply.versions[kept],
        finish="stop",
    )
    return shorter, text[:at], stop


def parse_completion(text: str, *, opened: bool, may_call: bool) -> ParsedCompletion:
    """Divide a reply.  ``opened``: the prompt ends inside thoughts; without ``may_call`` calls are text."""
    thoughts, content, _ = split_reasoning(text, opened=opened)
    actions = parse_tool_calls(content) if may_call else FinalReply(content)
    if isinstance(actions, FinalReply):
        return ParsedCompletion(thoughts, content, (), malformed=False)
    calls = tuple(action for action in actions if isinstance(action, AgentToolCall))
    if len(calls) < len(actions):
        return ParsedCompletion(thoughts, content, (), malformed=True)
    return ParsedCompletion(thoughts, text_outside_calls(content), calls, malformed=False)
