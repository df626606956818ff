"""Parses sampled token ids into a completion.  Pure.

The model writes tool calls in its format and, if it thinks, ``<think>…</think>``.  Thoughts, calls and text are
separated; a call that does not parse is returned as text.  The engine has no stop texts: a reply is cut after the token
that completes the first of them, where a sampler with stop texts would have stopped, so the kept tokens have the right
log-probabilities.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from actors.agents.agent import AgentToolCall
from actors.agents.call_format import CallFormat
from actors.agents.hermes import HERMES
from actors.engines.messages import GenerateReply
from actors.gateway.chat_request import ChatTool
from actors.tokens.chat_messages import ChatMessage


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
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}, "id": call.id}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReading:
    """Rules of one request by which the tokens of a reply are read."""

    text_of: Callable[[Sequence[int]], str]
    stops: Sequence[str]
    starts_in_thinking: bool
    """True if the prompt ends inside thoughts."""
    may_call: bool
    """If false, calls are text."""
    calls: CallFormat = HERMES
    tools: Sequence[object] = ()
    """Schemas of the tools that the reply may call."""
    text_tools: Collection[str] = ()
    """Names of those that take a text (:class:`~actors.gateway.chat_request.ChatTool`)."""

    def parse(self, text: str) -> ParsedCompletion:
        """Divide a reply."""
        thoughts, content, _ = self.calls.split_thoughts(text, opened=self.starts_in_thinking)
        actions, rest = self.calls.read(content, self.tools)
        if not self.may_call:
            actions, rest = (), content if actions else rest
        calls = tuple(self._as_given(action) for action in actions if isinstance(action, AgentToolCall))
        if len(calls) < len(actions):
            return ParsedCompletion(thoughts, content, (), malformed=True)
        return ParsedCompletion(thoughts, rest, calls, malformed=False)

    def _as_given(self, call: AgentToolCall) -> AgentToolCall:
        """Return a call as the harness will send it back: of a tool that takes a text, it only knows the text."""
        if call.name not in self.text_tools:
            return call
        return replace(call, arguments=ChatTool.text_arguments(ChatTool.given_text(call.arguments)))


def cut_at_stop(reply: GenerateReply, reading: CompletionReading) -> tuple[GenerateReply, str, str | None]:
    """Return the reply up to the token that completes the first of its stops, its text before that stop, and the stop;
    the whole reply and None if none occurs."""

    stops, text_of = reading.stops, reading.text_of

    def has_stop(count: int) -> bool:
        text = text_of(reply.token_ids[:count])
        return any(stop in text for stop in stops)

    if not has_stop(len(reply.token_ids)):
        return reply, text_of(reply.token_ids), None
    shorter = _shortest(reply, has_stop)
    text = text_of(shorter.token_ids)
    at, stop = min((text.index(stop), stop) for stop in stops if stop in text)
    return shorter, text[:at], stop


def cut_after_first_call(reply: GenerateReply, reading: CompletionReading) -> tuple[GenerateReply, ParsedCompletion]:
    """Return a reply that calls tools up to the token that completes its first call, and what it means: the text
    before that call, and the call.  Marks that its format writes after the last call are cut off too."""
    text = reading.text_of(reply.token_ids)
    parsed = reading.parse(text)
    content = reading.calls.split_thoughts(text, opened=reading.starts_in_thinking).answer
    call = reading.calls.find_first_call(content)
    kept = text[: len(text) - len(content) + call.end]
    shorter = _shortest(reply, lambda count: reading.text_of(reply.token_ids[:count]).startswith(kept))
    return shorter, replace(parsed, content=content[: call.begin].strip(), tool_calls=parsed.tool_calls[:1])


def _shortest(reply: GenerateReply, is_complete: Callable[[int], bool]) -> GenerateReply:
    """Return the shortest beginning of a reply for whose number of tokens ``is_complete`` is true, as it is for all
    longer ones."""
    return _first_tokens(reply, bisect.bisect_left(range(len(reply.token_ids) + 1), True, key=is_complete))


def _first_tokens(reply: GenerateReply, count: int) -> GenerateReply:
    kept = slice(count)
    return replace(
        reply,
        token_ids=reply.token_ids[kept],
        logprobs=reply.logprobs[kept],
        versions=reply.versions[kept],
        finish="stop",
    )
