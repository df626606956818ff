"""YAML by libyaml where PyYAML has it: hundreds of task files are read at once.

A text is looked at as a stream of events before anything is built of it, so that its depth and what its aliases stand
for are bounded whatever it says: libyaml itself ends the process over a deep enough text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import yaml

try:
    from yaml import CSafeDumper as _Dumper
    from yaml import CSafeLoader as _Loader
except ImportError:  # a PyYAML without libyaml
    from yaml import SafeDumper as _Dumper
    from yaml import SafeLoader as _Loader

_MAX_DEPTH = 100
_MAX_GROWTH = 1 << 20
"""Characters by which aliases may make a text longer."""


class YamlError(ValueError):
    """The text is not YAML; the message is one line."""


def parse_yaml(text: str) -> object:
    """Parse YAML.  Raises YamlError, also for duplicate keys, unbounded aliases and deep nesting."""
    try:
        _check(text)
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
        raise YamlError(" ".join(str(error).split())) from error


@dataclass(slots=True)
class _OpenCollection:
    """A collection whose end has not come yet."""

    anchor: str | None = None
    mapping: bool = False
    items: int = 0
    size: int = 1
    """Characters and nodes, what its aliases stand for among them."""
    keys: set[tuple[str, bool]] = field(default_factory=set[tuple[str, bool]])
    """With whether each was written without quotes: 1 and '1' are two."""

    def add_item(self, size: int) -> None:
        self.size += size
        self.items += 1

    def repeats_key(self, text: str, *, plain: bool) -> bool:
        """Whether a scalar that comes next is a key that was there before."""
        if not self.mapping or self.items % 2 or text == "<<":
            return False
        before = len(self.keys)
        self.keys.add((text, plain))
        return len(self.keys) == before


def _check(text: str) -> None:
    """Raises YamlError."""
    around = [_OpenCollection()]
    sizes: dict[str | None, int] = {}
    events = cast("Iterator[yaml.Event]", yaml.parse(text, Loader=_Loader))  # pyright: ignore[reportUnknownMemberType]  untyped there
    for event in events:
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                around.append(_OpenCollection(event.anchor, isinstance(event, yaml.MappingStartEvent)))
                if len(around) > _MAX_DEPTH:
                    raise YamlError(f"it is nested more than {_MAX_DEPTH} deep")
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = around.pop()
                sizes[ended.anchor] = ended.size
                around[-1].add_item(ended.size)
            case yaml.ScalarEvent():
                if around[-1].repeats_key(event.value, plain=event.implicit[0]):
                    raise YamlError(f"the key {event.value!r} comes twice in line {event.start_mark.line + 1}")
                sizes[event.anchor] = 1 + len(event.value)
                around[-1].add_item(sizes[event.anchor])
            case yaml.AliasEvent():
                if any(each.anchor == event.anchor for each in around):
                    raise YamlError(f"the alias *{event.anchor} stands for what it is in")
                around[-1].add_item(sizes.get(event.anchor, 1))
            case _:
                pass
    if around[0].size > len(text) + _MAX_GROWTH:
        raise YamlError(f"its aliases stand for more than {_MAX_GROWTH} characters")


def dump_yaml(values: object) -> bytes:
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120).encode()
