"""The formats of tool calls that are JSON between a family's marks, read by SGLang's detectors; and a model's format.

A detector skips a call that it cannot read, completes one that was cut off, and repairs what is almost JSON.  Here a
reply counts only if its calls are those that it writes: all that begin are ended and read, with the arguments that are
written, and no part of a call is outside of them.  Otherwise the whole reply is malformed, and none of its calls runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import orjson

from actors.agents.agent import AgentToolCall
from actors.agents.call_format import CallFormat, CallSpan, ReadCalls, malformed_reply
from actors.agents.harmony import HARMONY
from actors.agents.hermes import HERMES
from actors.agents.json_objects import SplitText, find_object, split_objects
from actors.agents.tagged_formats import TAGGED_FORMATS
from actors.tokens.control_tokens import TextTokenizer
from actors.tokens.reasoning import SplitReply, split_reasoning
from protocol.errors import UserError

_ARGUMENTS = re.compile(r'\{[^{}]*"(?:arguments|parameters)"\s*:\s*\{')


@dataclass(frozen=True)
class SGLangFormat:
    """The format that SGLang calls ``name``."""

    name: str
    mark: str
    """The text with which the first call begins."""
    call: str = ""
    """The text with which each call begins, if it is not JSON itself."""
    end: str = ""
    """The text with which each such call ends."""
    close: str = ""
    """The text that follows the last call, if any."""
    others: Sequence[str] = ()
    """Other texts that only calls contain."""
    between: str = ""
    """Pattern of what else is before and between calls that are JSON themselves."""
    id: str = ""
    """Pattern of a call's id, in a group."""
    rewritten: Sequence[tuple[str, str]] = ()
    """Patterns that the template writes and the detector does not know, and what it knows instead."""
    bare: str = ""
    """A reply that begins with this text is a call without a mark; empty for none."""

    @property
    def marks(self) -> Sequence[str]:
        return (self.mark, self.bare) if self.bare else (self.mark,)

    def split_thoughts(self, reply: str, *, opened: bool = False) -> SplitReply:
        return split_reasoning(reply, opened=opened)

    def read(self, text: str, tools: Sequence[object]) -> ReadCalls:
        before = text[: self._begin(text)]
        written = text[len(before) :].strip()
        parts, problem = self._split(written)
        calls = self._detect(written, tools) if written and not problem else ()
        problem = problem or (self._difference(written, parts.objects, calls) if written else None)
        outside = [] if problem else [each for each in (before.strip(), *self._outside(written, parts.texts)) if each]
        if problem := problem or next(filter(None, map(self._part_of_call, outside)), None):
            return malformed_reply(self.name, problem, text)
        return ReadCalls(calls, "\n".join(outside) if calls else text)

    def find_first_call(self, text: str) -> CallSpan:
        begin = self._begin(text)
        if self.call:
            return CallSpan(begin, text.index(self.end, begin) + len(self.end))
        found = find_object(text, begin)
        return CallSpan(begin, found.end if found else len(text))

    def _begin(self, text: str) -> int:
        """Return where the calls begin; the text's end if there are none."""
        if (begin := text.find(self.mark)) >= 0:
            return begin
        return 0 if self.bare and text.lstrip().startswith(self.bare) else len(text)

    def _split(self, written: str) -> tuple[SplitText, str | None]:
        """Return the JSON of calls, if they are JSON, and which calls have no end; None if all have one.

        Detectors take quadratic time for calls without an end."""
        nothing = SplitText([], [written])
        begun, ended = (written.count(mark) if mark else 0 for mark in (self.call, self.end))
        if begun != ended:
            return nothing, f"{begun} calls begin, and {ended} end with {self.end}"
        split = split_objects(written)
        return split, f"arguments are not valid JSON ({split.problem})" if split.problem else None

    def _detect(self, written: str, tools: Sequence[object]) -> list[AgentToolCall]:
        """Return the calls that SGLang's detector reads; none if it fails."""
        parser, tool = _sglang()
        ids = re.findall(self.id, written) if self.id else []
        for pattern, known in self.rewritten:
            written = re.sub(pattern, known, written)
        try:
            _, found = parser([tool.model_validate(each) for each in tools], self.name).parse_non_stream(written)
            ids = ids if len(ids) == len(found) else [""] * len(found)
            return [
                AgentToolCall(each.name, orjson.loads(each.parameters), call_id)
                for each, call_id in zip(found, ids, strict=True)
            ]
        except Exception:  # noqa: BLE001  detectors raise anything for a reply that they do not expect
            return []

    def _difference(
        self, written: str, objects: Sequence[Mapping[str, object]], calls: Sequence[AgentToolCall]
    ) -> str | None:
        """Return how the calls differ from what is written, with these JSON objects; None if they do not."""
        begun = written.count(self.call) if self.call else len(calls)
        if not calls or begun != len(calls):
            return f"{begun or 'no'} calls begin, and {len(calls)} can be read; each names one of the tools"
        if len(objects) != len(calls) or not all(map(_is_written, calls, objects)):
            return "arguments are not a valid JSON object"
        return None

    def _outside(self, written: str, around_json: Sequence[str]) -> Iterator[str]:
        """Yield the texts between and after calls; ``around_json``: those before, between and after JSON."""
        *before, last = written.split(self.end) if self.call else around_json
        marks = self.between or f"{re.escape(self.mark)}|{re.escape(self.close)}"
        for each in before:
            text = each.partition(self.call)[0] if self.call else each
            yield re.sub(rf"^(?:\s|{marks})*", "", text).strip()
        yield last.strip().removeprefix(self.close).strip()

    def _part_of_call(self, outside: str) -> str | None:
        """Return what of a call is in a text outside the calls; None if nothing is."""
        tags = (self.call, self.end, self.close) if self.call else ()
        parts = (self.mark, *tags, *self.others)
        if found := next((part for part in parts if part and part in outside), ""):
            return f"{found} is outside of a call"
        if not self.call and '"name"' in outside and _ARGUMENTS.search(outside):
            return f"a call is not after {self.mark}"
        return "a call is not ended" if self.bare and outside.startswith(self.bare) else None


def _is_written(call: AgentToolCall, written: Mapping[str, object]) -> bool:
    """Return whether a JSON object is the arguments of a call, or contains them and no others."""
    given = [written[key] for key in ("arguments", "parameters") if key in written]
    return call.arguments == written or (given == [call.arguments] and isinstance(given[0], dict))


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
_FORMATS = {
    each.name: each
    for each in (
        SGLangFormat("deepseekv3", *_DEEPSEEK, others=["<｜tool▁sep｜>"]),
        SGLangFormat("deepseekv31", *_DEEPSEEK, others=["<｜tool▁sep｜>"]),
        SGLangFormat(
            "kimi_k2", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>",
            close="<|tool_calls_section_end|>", others=["<|tool_call_argument_begin|>"],
            id=r"<\|tool_call_begin\|>\s*([^\s<|]+)",
        ),
        SGLangFormat("llama3", "<|python_tag|>", close=";", between=r"<\|python_tag\|>|;", bare="{"),
        SGLangFormat(
            "mistral", "[TOOL_CALLS]", close="]",
            between=r"\[TOOL_CALLS\](?:[^\[\]]*(?:\[CALL_ID\]\w*)?\[ARGS\])?|[\[\],]",
            others=["[ARGS]", "[CALL_ID]"], id=r"\[CALL_ID\](\w{9})\[ARGS\]",
            rewritten=[(r"\[CALL_ID\]\w{9}(?=\[ARGS\])", ""), (r"\[TOOL_CALLS\]\s*\[(?=\s*\{)", "[TOOL_CALLS] [")],
        ),
    )
}  # fmt: skip
_OTHERS: Mapping[str, CallFormat] = {HARMONY.name: HARMONY, "hermes": HERMES, **TAGGED_FORMATS}
_IN_TEMPLATES = (
    ("gpt-oss", r"<\|channel\|>commentary(?s:.*)<\|call\|>"),
    ("deepseekv3", r"(?s)<｜tool▁calls▁begin｜>.*```json"),
    ("deepseekv31", "<｜tool▁calls▁begin｜>"),
    ("kimi_k2", r"<\|tool_calls_section_begin\|>"),
    ("glm47", r"""(?s)\{\{[-\s]*['"]<tool_call>['"]\s*[+~]\s*tc\.name.*<arg_key>"""),
    ("glm45", "<arg_key>"),
    ("minimax-m2", "<minimax:tool_call>"),
    ("qwen3_coder", "<function="),
    ("hermes", r"""(?s)<tool_call>.*"arguments\\?":"""),
    ("mistral", r"\[TOOL_CALLS\]"),
    ("llama3", r"(?s)<\|start_header_id\|>.*\"parameters\""),
)
"""Formats and what tells them in a chat template; the first that is found counts."""


def detect_call_format(tokenizer: TextTokenizer) -> CallFormat:
    """Return the format in which a model with this chat template calls tools.

    Raises UserError if its format is not read here, or needs SGLang, which is not installed."""
    return call_format(find_format_name(tokenizer))


def find_format_name(tokenizer: TextTokenizer) -> str:
    """Return what SGLang calls the format of this chat template's calls; empty if it is not known."""
    templates = tokenizer.chat_template or ""
    template = templates if isinstance(templates, str) else "".join(templates.values())
    return next((name for name, pattern in _IN_TEMPLATES if re.search(pattern, template)), "")


def call_format(name: str) -> CallFormat:
    """Return the format that SGLang calls ``name``.  Raises UserError if it is not read here, or needs SGLang, which is
    not installed."""
    if name in _OTHERS:
        return _OTHERS[name]
    if name not in _FORMATS:
        raise UserError(
            f"agent.format = 'auto' finds no format of calls in this model's chat template that it reads "
            f"({', '.join((*_OTHERS, *_FORMATS))}): omit agent.format and describe Hermes calls in "
            "agent.system_prompt, or use an agent without calls (agent.kind = 'bash')"
        )
    try:
        _sglang()
    except ImportError as error:
        raise UserError(
            f"calls of the format {name} need SGLang ({error}): install it, or omit agent.format"
        ) from error
    return _FORMATS[name]


@cache
def _sglang() -> tuple[Any, Any]:
    """Import SGLang, which takes seconds, once; return its parser and its class of tools."""
    parser = import_module("sglang.srt.function_call.function_call_parser").FunctionCallParser
    return parser, import_module("sglang.srt.entrypoints.openai.protocol").Tool
