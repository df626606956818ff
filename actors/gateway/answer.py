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

from actors.agents.chat import Message
from actors.agents.hermes import Final, ToolCall, beside_calls, parse
from actors.engines.messages import GenerateReply

THINK, THOUGHT = "<think>", "</think>"


class Ending(StrEnum):
    """Why a reply ended."""

    TURN = "turn"
    """The model ended its turn."""
    CALLS = "calls"
    """It did, and asks for tools."""
    STOP_TEXT = "stop_text"
    LENGTH = "length"
    """As many tokens as may be sampled were."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said, taken apart."""

    thoughts: str
    content: str
    calls: tuple[ToolCall, ...]
    malformed: bool
    """A call did not parse, so the content is all of the reply."""

    @property
    def message(self) -> Message:
        """As a history holds it."""
        message: Message = {"role": "assistant", "content": self.content}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    said: Said
    ending: Ending
    stop_text: str | None
    """Of those asked for, the one that came."""
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int
    """Of the prompt's, those that the engine had seen."""


def cut(
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


def take_apart(text: str, *, opened: bool, may_call: bool) -> Said:
    """Thoughts, content and calls; no calls where there may be none.  ``opened``: the prompt ends within thoughts."""
    thoughts, content = thoughts_of(text, opened=opened)
    actions = parse(content) if may_call else Final(content)
    if isinstance(actions, Final):
        return Said(thoughts, content, (), malformed=False)
    calls = tuple(action for action in actions if isinstance(action, ToolCall))
    if len(calls) < len(actions):
        return Said(thoughts, content, (), malformed=True)
    return Said(thoughts, beside_calls(content), calls, malformed=False)


def opens_thoughts(prompt: str) -> bool:
    """Whether it ends with the beginning of thoughts, as some templates' prompts do."""
    return prompt.rstrip().endswith(THINK)


def thinks(text: str, *, opened: bool) -> bool:
    """It begins with thoughts, which a limit may leave open."""
    return opened or text.lstrip().startswith(THINK)


def thoughts_of(text: str, *, opened: bool) -> tuple[str, str]:
    """Thoughts, and what comes after them."""
    if not thinks(text, opened=opened):
        return "", text
    thoughts, _, rest = text.partition(THOUGHT)
    return thoughts.strip().removeprefix(THINK).strip(), rest.lstrip("\n")
