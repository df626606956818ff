"""The formats of tool calls whose arguments have tags of their own: those of GLM, Qwen3-Coder and MiniMax.

Their templates write a text as it is and anything else as JSON, so an argument is what the tool's schema says: where it
permits only texts, all that is between the tags; else JSON of a kind that it permits; else, if it permits texts too,
that text.  All that begins must be ended, and nothing else be in a call.  Otherwise the whole reply is malformed, and
none of its calls runs.  All of it takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from actors.agents.agent import AgentToolCall
from actors.agents.call_format import CallSpan, ReadCalls, malformed_reply
from actors.agents.json_objects import InvalidObjectError, read_json
from actors.tokens.reasoning import SplitReply, split_reasoning

_KINDS: Mapping[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"
}  # fmt: skip
_ANY = frozenset(_KINDS.values())
_PYTHON = {"None": "null", "True": "true", "False": "false"}
"""The words that Qwen3-Coder's template writes instead of JSON's."""


class _MalformedCallError(Exception):
    """A call is not in the format."""


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: Mapping[str, str]
    """The texts between the tags."""
    end: int


@dataclass(frozen=True)
class TaggedFormat:
    """The format that SGLang calls ``name``."""

    name: str
    mark: str
    """The text with which calls begin."""
    head: str
    """Pattern of what begins each call after it, with the tool's name in a group."""
    argument: str
    """Pattern of an argument, with its name and text in groups."""
    end: str
    """Pattern of a call's end."""
    tags: Sequence[str]
    """Texts that are only in calls, and in no argument."""
    closing: str = ""
    """Pattern of what follows the last of the calls after a mark; empty if each has its own."""

    @property
    def marks(self) -> Sequence[str]:
        return (self.mark,)

    def split_thoughts(self, reply: str, *, opened: bool = False) -> SplitReply:
        return split_reasoning(reply, opened=opened)

    def read(self, text: str, tools: Sequence[object]) -> ReadCalls:
        """Read a reply after its thoughts; calls of other tools than ``tools`` are read too."""
        schemas = dict(map(_parameters, tools))
        try:
            parts = list(self._split(text))
            calls = [_typed(part, schemas.get(part.name, {})) for part in parts if isinstance(part, _Call)]
        except _MalformedCallError as error:
            return malformed_reply(self.name, str(error), text)
        outside = [part.strip() for part in parts if isinstance(part, str) and part.strip()]
        return ReadCalls(calls, "\n".join(outside)) if calls else ReadCalls((), text)

    def find_first_call(self, text: str) -> CallSpan:
        begin = text.index(self.mark)
        return CallSpan(begin, self._read_call(text, begin + len(self.mark)).end)

    def _split(self, text: str) -> Iterator[_Call | str]:
        """Yield calls and the texts around them.  Raises :class:`_MalformedCallError`."""
        closing, at = re.compile(self.closing), 0
        while (begin := text.find(self.mark, at)) >= 0:
            yield self._without_tags(text[at:begin], "outside of a call")
            at, closed = begin + len(self.mark), None
            while closed is None:
                yield (call := self._read_call(text, at))
                at, closed = call.end, closing.match(text, call.end)
            at = closed.end()
        yield self._without_tags(text[at:], "outside of a call")

    def _read_call(self, text: str, at: int) -> _Call:
        if (head := re.compile(self.head).match(text, at)) is None:
            raise _MalformedCallError("a call does not begin with a tool's name, or is not ended")
        at = head.end()
        arguments: dict[str, str] = {}
        argument = re.compile(self.argument, re.DOTALL)
        while found := argument.match(text, at):
            key = found[1].strip()
            if key in arguments:
                raise _MalformedCallError(f"the argument {key} is given twice")
            arguments[key] = self._without_tags(found[2], f"in the argument {key}")
            at = found.end()
        if (end := re.compile(self.end).match(text, at)) is None:
            raise _MalformedCallError(f"the call of {head[1]} or one of its arguments is not ended, or has other text")
        return _Call(head[1], arguments, end.end())

    def _without_tags(self, text: str, where: str) -> str:
        if found := next((tag for tag in self.tags if tag in text), ""):
            raise _MalformedCallError(f"{found} is {where}")
        return text


def _parameters(tool: object) -> tuple[object, Mapping[str, object]]:
    """Return a tool's name and the schemas of its parameters."""
    function = _mapping(_mapping(tool).get("function"))
    return function.get("name"), _mapping(_mapping(function.get("parameters")).get("properties"))


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _typed(call: _Call, schemas: Mapping[str, object]) -> AgentToolCall:
    try:
        arguments = {key: _value(text, _kinds(schemas.get(key))) for key, text in call.arguments.items()}
    except InvalidObjectError as error:
        raise _MalformedCallError(f"an argument of {call.name} is not what its schema says ({error})") from error
    return AgentToolCall(call.name, arguments)


def _value(text: str, kinds: frozenset[str]) -> object:
    """Return an argument's value.  Raises :class:`InvalidObjectError` if it is of none of the ``kinds``."""
    try:
        value = read_json(text if "string" in kinds else _PYTHON.get(text.strip(), text))
    except InvalidObjectError:
        if "string" in kinds:
            return text
        raise
    kind = _kind(value)
    if kind != "string" and kind in kinds:
        return value
    if "string" in kinds:
        return text
    raise InvalidObjectError(f"it is of the type {kind}, not {' or '.join(sorted(kinds))}")


def _kind(value: object) -> str:
    return "integer" if isinstance(value, float) and value.is_integer() else _KINDS[type(value)]


def _kinds(schema: object) -> frozenset[str]:
    """Return the kinds of values that a schema permits; all of them if it does not say."""
    described = _mapping(schema)
    if named := _list(described.get("type")):
        named += ["integer"] if "number" in named else []
        return frozenset(kind for kind in _ANY if kind in named) or _ANY
    if options := _list(described.get("anyOf")) or _list(described.get("oneOf")):
        return frozenset[str]().union(*map(_kinds, options))
    values = [described["const"]] if "const" in described else _list(described.get("enum"))
    return frozenset(map(_kind, values)) or _ANY


def _list(value: object) -> list[object]:
    if isinstance(value, list):
        return [*cast("list[object]", value)]
    return [] if value is None else [value]


_GLM = (
    "<tool_call>", r"\s*([^\s<>]+)\s*",
    r"<arg_key>([^<>]+)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", "</tool_call>",
    ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)  # fmt: skip
TAGGED_FORMATS = {
    each.name: each
    for each in (
        TaggedFormat("glm45", *_GLM),
        TaggedFormat("glm47", *_GLM),
        TaggedFormat(
            "minimax-m2", "<minimax:tool_call>", r'\s*<invoke name="([^"<>]+)">\s*',
            r'<parameter name="([^"<>]+)">(.*?)</parameter>\s*', "</invoke>",
            ("<minimax:tool_call>", "</minimax:tool_call>", "<invoke ", "</invoke>", "<parameter ", "</parameter>"),
            closing=r"\s*</minimax:tool_call>",
        ),
        TaggedFormat(
            "qwen3_coder", "<tool_call>", r"\s*<function=([^\s<>]+)>\s*",
            r"<parameter=([^\s<>]+)>\n?(.*?)\n?</parameter>\s*", r"</function>\s*</tool_call>",
            ("<tool_call>", "</tool_call>", "<function=", "<parameter=", "</parameter>"),
        ),
    )
}  # fmt: skip
