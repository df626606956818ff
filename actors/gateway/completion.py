"""From sampled ids to what a harness is told.  Pure.

The model writes Hermes tool calls and, where it thinks, ``<think>…</think>``.  Thoughts, calls and the rest are told
apart; a call that does not parse is told as the text that it is.  The engine knows no stop texts: a reply is cut behind
the token in which the first of them was complete, which is where a sampler that knows them stops, so the tokens that
are kept have the log-probabilities that they were sampled with.
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
    """Why a reply ended."""

    END_OF_TURN = "turn"
    """The model ended its turn."""
    TOOL_CALLS = "calls"
    """It did, and asks for tools."""
    STOP_TEXT = "stop_text"
    LENGTH = "length"
    """As many tokens as may be sampled were."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """What the model said, taken apart."""

    thoughts: str
    content: str
    tool_calls: tuple[AgentToolCall, ...]
    malformed: bool
    """A call did not parse, so the content is all of the reply."""

    @property
    def message(self) -> ChatMessage:
        """As a history holds it."""
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
    """Of those asked for, the one that came."""
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int
    """Of the prompt's, those that the engine had seen."""


def cut_at_stop(
    reply: GenerateReply, stops: Sequence[str], text_of: Callable[[Sequence[int]], str]
) -> tuple[GenerateReply, str, str | None]:
    """The reply up to the token that completes the first of ``stops``, its text before that stop, and the stop; all of
    it, and None, where none came."""

    def come(count: int) -> bool:
        text = text_of(reply.token_ids[:count])
        return any(stop in text for stop in stops)

    whole = len(reply.token_ids)
    if not come(whole):
        return reply, text_of(reply.token_ids), None
    count = bisect.bisect_left(range(whole + 1), True, key=come)
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
    """Thoughts, content and calls; no calls where there may be none.  ``opened``: the prompt ends within thoughts."""
    thoughts, content, _ = split_reasoning(text, opened=opened)
    actions = parse_tool_calls(content) if may_call else FinalReply(content)
    if isinstance(actions, FinalReply):
        return ParsedCompletion(thoughts, content, (), malformed=False)
    calls = tuple(action for action in actions if isinstance(action, AgentToolCall))
    if len(calls) < len(actions):
        return ParsedCompletion(thoughts, content, (), malformed=True)
    return ParsedCompletion(thoughts, text_outside_calls(content), calls, malformed=False)
