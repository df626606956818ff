"""Parses YAML with libyaml where PyYAML has it: hundreds of task files are read at once.

A text is first read as a stream of events, so that its depth and the size of its aliases are bounded whatever its
content: libyaml itself crashes the process on a text that is nested too deeply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import yaml

if TYPE_CHECKING:
    from yaml import SafeDumper as _Dumper
    from yaml import SafeLoader as _Loader
else:  # without libyaml, PyYAML has only the slow ones
    _Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_MAX_DEPTH = 100
_MAX_NUMBER = 1000
"""Maximum characters of a number: reading one takes time by the square of its length."""
_NUMBER_TAGS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_MAX_GROWTH = 1 << 20
"""Maximum characters by which aliases may make a text longer."""


class YamlLoader(_Loader):
    """Reads nothing but texts, numbers, truth values, dates, lists and mappings."""


class YamlDumper(_Dumper):
    """Writes what :class:`YamlLoader` reads."""


class YamlError(ValueError):
    """The text is not YAML; the message is one line."""


def parse_yaml(text: str, loader: type[YamlLoader] = YamlLoader) -> object:
    """Parse YAML.  Raises YamlError, also for duplicate keys, unbounded aliases and deep nesting."""
    try:
        _check(text)
        return yaml.load(text, Loader=loader)  # noqa: S506  a safe one
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise YamlError(" ".join(str(error).split())) from error


@dataclass(slots=True)
class _OpenCollection:
    """A collection that has not ended yet."""

    anchor: str | None = None
    mapping: bool = False
    items: int = 0
    size: int = 1
    """Number of characters and nodes, including those that its aliases stand for."""
    keys: set[tuple[str, bool]] = field(default_factory=set[tuple[str, bool]])
    """Keys, and whether each was written without quotes: 1 and '1' differ."""

    def add_item(self, size: int) -> None:
        self.size += size
        self.items += 1

    def repeats_key(self, text: str, *, plain: bool) -> bool:
        """Return whether a scalar that comes next is a key that was there before."""
        if not self.mapping or self.items % 2 or text == "<<":
            return False
        before = len(self.keys)
        self.keys.add((text, plain))
        return len(self.keys) == before


def _check(text: str) -> None:
    """Raise YamlError if the text exceeds a limit or repeats a key."""
    open_collections = [_OpenCollection()]
    sizes: dict[str | None, int] = {}
    events = cast("Iterator[yaml.Event]", yaml.parse(text, Loader=YamlLoader))  # pyright: ignore[reportUnknownMemberType]  untyped there
    for event in events:
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                open_collections.append(_OpenCollection(event.anchor, isinstance(event, yaml.MappingStartEvent)))
                if len(open_collections) > _MAX_DEPTH:
                    raise YamlError(f"it is nested more than {_MAX_DEPTH} deep")
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = open_collections.pop()
                sizes[ended.anchor] = ended.size
                open_collections[-1].add_item(ended.size)
            case yaml.ScalarEvent():
                if event.implicit[0] and len(event.value) > _MAX_NUMBER and _is_number(event.value):
                    raise YamlError(f"line {event.start_mark.line + 1} has a number of more than {_MAX_NUMBER} digits")
                if open_collections[-1].repeats_key(event.value, plain=event.implicit[0]):
                    raise YamlError(f"the key {event.value!r} is repeated in line {event.start_mark.line + 1}")
                sizes[event.anchor] = 1 + len(event.value)
                open_collections[-1].add_item(sizes[event.anchor])
            case yaml.AliasEvent():
                if any(each.anchor == event.anchor for each in open_collections):
                    raise YamlError(f"the alias *{event.anchor} contains itself")
                open_collections[-1].add_item(sizes.get(event.anchor, 1))
            case _:
                pass
    if open_collections[0].size > len(text) + _MAX_GROWTH:
        raise YamlError(f"its aliases stand for more than {_MAX_GROWTH} characters")


def _is_number(text: str) -> bool:
    """Return whether YAML reads a text without quotes as a number."""
    patterns = [
        *YamlLoader.yaml_implicit_resolvers.get(text[:1], ()),
        *YamlLoader.yaml_implicit_resolvers.get(None, ()),
    ]
    return next((tag for tag, pattern in patterns if pattern.match(text)), "") in _NUMBER_TAGS


def dump_yaml(values: object, dumper: type[YamlDumper] = YamlDumper) -> bytes:
    return yaml.dump(values, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120).encode()
