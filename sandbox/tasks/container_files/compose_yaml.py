"""Parses the YAML of a compose file as Compose v2 does: with Go's rules for plain scalars, which differ from PyYAML's.

``on`` and ``1000:50`` are texts there, ``0o17`` is a number, and a number that becomes a text, such as a variable's
value, is written as Go writes it. Source: gopkg.in/yaml.v3, resolve.go.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from sandbox.tasks.yaml_text import YamlDumper, YamlLoader, dump_yaml, parse_yaml

_PREFIX = "tag:yaml.org,2002:"
_RULES = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0b[01_]+|0o?[0-7_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
)
"""For each kind of plain scalar: its tag, its pattern, and the characters that it may begin with."""
_OTHER_RULES = frozenset((f"{_PREFIX}null", f"{_PREFIX}merge", f"{_PREFIX}timestamp"))
"""Kinds for which PyYAML's rules are Go's."""
_MOST_PLAIN_EXPONENT = 5


class _ComposeLoader(YamlLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012  PyYAML's own attribute
        first: [rule for rule in rules if rule[0] in _OTHER_RULES]
        for first, rules in YamlLoader.yaml_implicit_resolvers.items()
    }


class _ComposeDumper(YamlDumper):
    """Quotes the texts that are something else by PyYAML's rules or by Go's."""


for _tag, _pattern, _first in _RULES:
    for _each in (_ComposeLoader, _ComposeDumper):
        _each.add_implicit_resolver(_PREFIX + _tag, re.compile(rf"(?:{_pattern})\Z"), list(_first))  # pyright: ignore[reportUnknownMemberType]  untyped there


def parse_compose_yaml(text: str) -> object:
    """Parse the text of a compose file.  Raises YamlError."""
    return parse_yaml(text, _ComposeLoader)


def dump_compose_yaml(values: object) -> bytes:
    """Write a compose file, in which Compose finds the same texts."""
    return dump_yaml(values, _ComposeDumper)


def scalar_text(value: object) -> str:
    """Return the text that Compose makes of a scalar where it needs a text."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return _go_float(value) if math.isfinite(value) else {"nan": "NaN", "inf": "+Inf"}.get(str(value), "-Inf")
        case _:
            return str(value)


def _go_float(value: float) -> str:
    """Return the shortest decimal of a finite number, with an exponent below 0.0001 and from a million on."""
    decimal = Decimal(repr(value)).normalize()
    if -4 <= decimal.adjusted() <= _MOST_PLAIN_EXPONENT:
        return f"{decimal:f}"
    mantissa, _, exponent = f"{decimal:e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"
