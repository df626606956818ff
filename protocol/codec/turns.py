"""Turns as columns: one list a field, so that a check looks at a column and not at a turn."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, cast

from protocol.codec.errors import CodecError
from protocol.codec.fields import INT64, Fields, wrong
from protocol.trajectory import Turn, TurnKind

_NAMES = tuple(field.name for field in fields(Turn))
_KINDS = {kind.value: kind for kind in TurnKind}
_TYPES: dict[str, tuple[set[type], str]] = {
    "kind": ({str}, "text"),
    "start": ({int}, "an integer"),
    "end": ({int}, "an integer"),
    "tool": ({str}, "text"),
    "exit_code": ({int, type(None)}, "an integer or null"),
    "ms": ({int, float}, "a finite number"),
    "key_version": ({int}, "an integer"),
    "mixed_prefix": ({bool}, "true or false"),
    "malformed": ({bool}, "true or false"),
}


class TurnColumns(NamedTuple):
    """Lists of equal length, in the order of :class:`Turn`'s fields."""

    kind: list[str]
    start: list[int]
    end: list[int]
    tool: list[str]
    exit_code: list[int | None]
    ms: list[float]
    key_version: list[int]
    mixed_prefix: list[bool]
    malformed: list[bool]

    def turns(self) -> tuple[Turn, ...]:
        """The turns of columns that were checked."""
        kinds = [_KINDS[kind] for kind in self.kind]
        rest = zip(*self[1:5], map(float, self.ms), *self[6:], strict=True)
        return tuple(Turn(kind, *values) for kind, values in zip(kinds, rest, strict=True))


def columns(turns: Sequence[Turn]) -> dict[str, list[Any]]:
    """``turns`` for the header."""
    return {name: list(map(operator.attrgetter(name), turns)) for name in _NAMES}


def read_columns(parsed: Fields, length: int) -> TurnColumns:
    """The columns of a segment of ``length`` tokens.  Raises CodecError unless they make turns of it."""
    found = TurnColumns(*(cast("list[Any]", parsed.column(name)) for name in _NAMES))
    for name, column in zip(_NAMES, found, strict=True):
        types, expected = _TYPES[name]
        if len(column) != len(found.kind) or not types.issuperset(map(type, column)):
            raise wrong(name, f"{expected} for each turn")
    if not found.kind:
        return found
    if not _KINDS.keys() >= set(found.kind):
        raise CodecError("unknown turn kind")
    if not (min(found.start) >= 0 and max(found.end) <= length and all(map(operator.le, found.start, found.end))):
        raise CodecError(f"a turn's start or end is outside of the segment's {length} tokens")
    if not all(map(math.isfinite, found.ms)):
        raise wrong("ms", "a finite number")
    if min(found.key_version) < -1 or max(found.key_version) >= INT64:
        raise wrong("key_version", "a version")
    if any(code is not None and not -INT64 <= code < INT64 for code in found.exit_code):
        raise wrong("exit_code", "an integer of 64 bits")
    return found
