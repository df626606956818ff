"""Keeps text that spells a control token from becoming one: only what the chat template itself writes is special.

A file, an instruction or a harness's message may contain ``<|im_end|>`` and would forge the end of a turn.  So each
such spelling is cut before the template renders it, by a mark that no text can contain, and the parts are encoded one
by one: the same characters, as ordinary tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from actors.tokens.reasoning import THINK_END, THINK_START

_CUT = "\ud800"
"""A lone surrogate: no text that a tokenizer accepts has one."""
_BARS = re.compile("[|｜]")
"""Found in control tokens that a tokenizer does not call special, as Qwen's ``<|fim_pad|>`` and DeepSeek's
``<｜User｜>``."""
_REPLY_MARKS = {
    THINK_START, THINK_END, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
    "<|tool_call_argument_begin|>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<minimax:tool_call>",
    "</minimax:tool_call>",
}  # fmt: skip
"""The marks of thoughts and calls, of which replies of all families consist besides text."""

Value = TypeVar("Value")


class AddedToken(Protocol):
    """A token that was added to those that the tokenizer's model has learnt."""

    content: str
    special: bool


class TextTokenizer(Protocol):
    """The parts of a Hugging Face tokenizer that are used here."""

    @property
    def chat_template(self) -> str | Mapping[str, str] | None: ...
    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...


class ControlTokens:
    """The control tokens of one tokenizer: those that it calls special, that have a bar, or that its chat template
    writes, and the marks of thoughts and calls.  Other added tokens, such as Gemma's for line breaks and HTML, are
    vocabulary."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        template = tokenizer.chat_template or ""
        written = template if isinstance(template, str) else "".join(template.values())
        found = {
            token.content
            for token in tokenizer.added_tokens_decoder.values()
            if token.special
            or token.content in _REPLY_MARKS
            or _BARS.search(token.content)
            or (token.content.strip() and token.content in written)
        }
        others = found.difference(_REPLY_MARKS)
        self._starts, self._starts_in_reply = _starts(found), _starts(others)
        self._others = re.compile("|".join(map(re.escape, sorted(others, reverse=True))) or "(?!)")
        self._anchor = next((token for token in sorted(found) if len(self._encode(token)) == 1), "")
        """A control token: text after it is encoded as in the middle of a text."""

    def disarm(self, value: Value, *, reply: bool = False) -> Value:
        """Return ``value`` with the spellings in its texts, at any depth, cut; a ``reply`` keeps its thoughts' and
        calls' marks."""
        return cast("Value", _cut(value, self._starts_in_reply if reply else self._starts))

    def find(self, text: str) -> str:
        """Return the first control token in a text of disarmed ones and a template's own, besides the marks of thoughts
        and calls; empty if there is none."""
        return found[0] if (found := self._others.search(text)) else ""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text that consists of disarmed ones and a template's own."""
        first, *rest = text.split(_CUT)
        ids = self._encode(first)
        for part in rest:
            ids += self._encode(self._anchor + part)[1:]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, in which control tokens are spelled."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


def _starts(tokens: Collection[str]) -> re.Pattern[str]:
    """Return a pattern of the first character of each spelling, overlapping ones included."""
    return re.compile(f"(?=(?:{'|'.join(map(re.escape, sorted(tokens))) or '(?!)'})).", re.DOTALL)


def _cut(value: object, starts: re.Pattern[str]) -> object:
    if isinstance(value, str):
        return starts.sub(rf"\g<0>{_CUT}", value)
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {_cut(key, starts): _cut(each, starts) for key, each in items}
    if isinstance(value, list | tuple):
        return [_cut(each, starts) for each in cast("Sequence[object]", value)]
    return value
