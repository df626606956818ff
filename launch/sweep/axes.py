"""Axes, and the points that are their product.  Pure.

An axis is a key with values (``run.seed=0,1,2``), or a name with named choices, each of which sets several keys.  A
point is one choice on each axis; its name, which is also its folder's, does not depend on the other points.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from launch.config.loader import Toml
from launch.config.toml_text import format_toml
from protocol.errors import UserError

_MAX_NAME_CHARS = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")


@dataclass(frozen=True, slots=True)
class AxisChoice:
    shown: str
    """The value, or the name of the choice."""
    label: str
    """Part of a folder's name."""
    values: Mapping[str, Toml]
    """Key → value."""


@dataclass(frozen=True, slots=True)
class SweepAxis:
    name: str
    """The key, or the axis's own name."""
    choices: tuple[AxisChoice, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for choice in self.choices for key in choice.values)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    name: str
    at: Mapping[str, str] = field(default_factory=dict[str, str])
    """Axis → the choice as it is shown."""
    values: Mapping[str, Toml] = field(default_factory=dict[str, Toml])
    """Key → value of all choices."""


def parse_axis(word: str) -> SweepAxis:
    """Parse ``KEY=VALUE,VALUE`` of a command line.  Raises UserError."""
    key, equals, raw = (part.strip() for part in word.partition("="))
    if not equals or not key or not raw:
        raise UserError(f"--axis {word}: write it as KEY=VALUE,VALUE, for example --axis run.seed=0,1,2")
    try:
        values = cast("list[Toml]", tomllib.loads(f"values = [{raw}]")["values"])
    except tomllib.TOMLDecodeError:
        values = [parse_value(each.strip()) for each in raw.split(",")]
    return plain_axis(key, values)


def parse_value(raw: str) -> Toml:
    """Parse a TOML value; anything else is text."""
    try:
        return cast("Toml", tomllib.loads(f"value = {raw}")["value"])
    except tomllib.TOMLDecodeError:
        return raw


def plain_axis(key: str, values: Sequence[Toml]) -> SweepAxis:
    """Return the axis of one key.  Raises UserError for an empty or repeated value."""
    found: list[AxisChoice] = []
    for value in values:
        shown = value if isinstance(value, str) else format_toml(value)
        if not shown or any(shown == each.shown for each in found):
            raise UserError(f"axis {key}: {f'{shown} is there twice' if shown else 'a value is empty'}: leave it out")
        found.append(AxisChoice(shown, _label(key, value), {key: value}))
    return _axis(key, found)


def named_axis(name: str, choices: Mapping[str, Mapping[str, Toml]]) -> SweepAxis:
    """Return an axis of named choices.  Raises UserError if it has none."""
    return _axis(name, [AxisChoice(each, _safe(each), values) for each, values in choices.items()])


def _axis(name: str, choices: Sequence[AxisChoice]) -> SweepAxis:
    """Number equal labels."""
    if not choices:
        raise UserError(f"axis {name} has no values: give it some, or leave it out")
    found: list[AxisChoice] = []
    for number, choice in enumerate(choices, 1):
        taken = any(choice.label == each.label for each in found)
        label = f"{choice.label}_{number}" if taken else choice.label
        found.append(AxisChoice(choice.shown, label, choice.values))
    return SweepAxis(name, tuple(found))


def build_points(axes: Sequence[SweepAxis]) -> tuple[SweepPoint, ...]:
    """Return every point; the last axis varies fastest.  Raises UserError if two axes set the same key."""
    if not axes:
        raise UserError("nothing varies: name an axis, for example --axis run.seed=0,1,2")
    for one, other in itertools.combinations(axes, 2):
        if one.name == other.name:
            raise UserError(f"there are two axes {one.name}: give it all of its values at once")
        if both := sorted(one.keys & other.keys):
            raise UserError(f"the axes {one.name} and {other.name} both set {both[0]}: leave it to one of them")
    return tuple(_point(axes, choices) for choices in itertools.product(*(axis.choices for axis in axes)))


def _point(axes: Sequence[SweepAxis], choices: Sequence[AxisChoice]) -> SweepPoint:
    name = "-".join(choice.label for choice in choices)
    if len(name) > _MAX_NAME_CHARS:
        name = f"{name[:_MAX_NAME_CHARS]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    at = {axis.name: choice.shown for axis, choice in zip(axes, choices, strict=True)}
    return SweepPoint(name, at, {key: value for choice in choices for key, value in choice.values.items()})


def format_assignments(values: Mapping[str, Toml]) -> list[str]:
    """Return ``key=value`` of each, as ``--set`` takes it."""
    return [f"{key}={format_toml(value)}" for key, value in values.items()]


def flatten_keys(values: Mapping[str, Toml], keys: Iterable[str], prefix: str = "") -> dict[str, Toml]:
    """Return tables as ``section.key`` → value; a table that is the value of one of ``keys`` stays one."""
    known, found = frozenset(keys), dict[str, Toml]()
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in known:
            found |= flatten_keys(value, known, f"{key}.")
        else:
            found[key] = value
    return found


def _label(key: str, value: Toml) -> str:
    """Return the last part of a path or URL, or a number with its key."""
    if isinstance(value, str):
        _, url, rest = value.partition("://")
        return _safe(rest if url else value.rstrip("/").rpartition("/")[2])
    separator = "_" if isinstance(value, bool) else ""
    return _safe(f"{key.rpartition('.')[2]}{separator}{format_toml(value)}")


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_.") or "x"
