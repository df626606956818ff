"""Encodes values as tagged lists, as they cross between the judge's process and the candidate's. Pure.

Runs in both, on any Python from 3.9 and with few of its modules. What :func:`pack` and :func:`unpack` know is data: it
arrives as an equal value of the standard type. For everything else the caller passes a function.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, ItemsView, Iterable, KeysView, ValuesView
from importlib import import_module
from typing import Any, cast

Packed = Any
"""A literal: None, a boolean, a number, a text, or a list of a tag and its content."""
Packer = Callable[[object], Packed]
Unpacker = Callable[[list[Any]], object]
_PLAIN_INT = 1 << 53
_INFINITE = float("inf")
_LISTED: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPED: dict[str, Any] = {"Counter": Counter, "OrderedDict": OrderedDict, "dict": dict}
_VIEWS: dict[str, Any] = {"keys": KeysView, "items": ItemsView, "values": ValuesView}
_DATES = {
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
}
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple)}
MUTABLE_TYPES: tuple[type, ...] = (list, dict, set, deque, bytearray)


class UncrossableValueError(TypeError):
    """A value is neither data nor an object that the other process could request."""


def pack(value: Any, other: Packer) -> Packed:
    """Encode ``value``; a subclass crosses as its standard type.  Raises whatever ``other`` raises for other values."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__pos__(value) if -_PLAIN_INT < value < _PLAIN_INT else ["int", hex(value)]
    if isinstance(value, float):
        return float.__pos__(value) if abs(value) < _INFINITE else ["float", str(float.__pos__(value))]
    tagged = _pack_container(value, other)
    return tagged or _pack_scalar(value) or other(value)


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind)


def _is_of(module: str, name: str, value: object) -> bool:
    """Return whether ``value`` is of this class, whose module may not be loaded."""
    return module in sys.modules and _is(value, getattr(sys.modules[module], name, ()))


def _pack_container(value: Any, other: Packer) -> Packed:
    def all_of(values: Iterable[Any]) -> list[Packed]:
        return [pack(each, other) for each in values]

    if _is(value, tuple) and hasattr(value, "_fields"):
        return ["named", type(value).__name__, list(value._fields), all_of(value)]
    for tag, kind in _LISTED.items():
        if _is(value, kind):
            return [tag, all_of(value)]
    if _is(value, defaultdict):
        factory = getattr(value.default_factory, "__name__", "")
        return ["defaultdict", factory, [all_of(pair) for pair in value.items()]]
    for tag, kind in _MAPPED.items():
        if _is(value, kind):
            return [tag, [all_of(pair) for pair in value.items()]]
    if _is(value, deque):
        return ["deque", all_of(value), value.maxlen]
    for tag, kind in _VIEWS.items():
        if _is(value, kind):
            return [tag, all_of(value)]
    if _is(value, (range, slice)):
        return [type(value).__name__, *all_of((value.start, value.stop, value.step))]
    return None


def _pack_scalar(value: Any) -> Packed:
    if isinstance(value, (bytes, bytearray)):
        return ["bytes" if isinstance(value, bytes) else "bytearray", value.hex()]
    if isinstance(value, complex):
        return ["complex", str(value)]
    if _is_of("fractions", "Fraction", value):
        return ["Fraction", hex(value.numerator), hex(value.denominator)]
    if _is_of("decimal", "Decimal", value):
        return ["Decimal", str(value)]
    if isinstance(value, dt.timedelta):
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if isinstance(value, dt.timezone):
        return ["timezone", value.utcoffset(None).total_seconds()]
    for tag, kind in (("datetime", dt.datetime), ("date", dt.date), ("time", dt.time)):
        if isinstance(value, kind):
            return [tag, value.isoformat()]
    return ["..."] if value is ... else None


def unpack(packed: Packed, other: Unpacker) -> Any:
    """Decode what :func:`pack` made.  Raises ValueError, TypeError and the like for what it never makes."""
    if not isinstance(packed, list):
        return packed
    tag, rest = cast("Any", packed[0]), cast("list[Any]", packed[1:])
    if tag in _LISTED:
        return _LISTED[tag](_unpack_all(rest[0], other))
    if tag in _MAPPED:
        return _MAPPED[tag]({unpack(key, other): unpack(value, other) for key, value in rest[0]})
    if tag in _DATES:
        return _DATES[tag](rest[0])
    if tag in _UNPACK:
        return _UNPACK[tag](rest, other)
    return other([tag, *rest])


def _unpack_all(values: list[Packed], other: Unpacker) -> list[Any]:
    return [unpack(each, other) for each in values]


_UNPACK: dict[str, Callable[[list[Any], Unpacker], object]] = {
    "int": lambda rest, _: int(rest[0], 16),
    "bytes": lambda rest, _: bytes.fromhex(rest[0]),
    "bytearray": lambda rest, _: bytearray.fromhex(rest[0]),
    "float": lambda rest, _: float(rest[0]),
    "complex": lambda rest, _: complex(rest[0]),
    "Fraction": lambda rest, _: import_module("fractions").Fraction(int(rest[0], 16), int(rest[1], 16)),
    "Decimal": lambda rest, _: import_module("decimal").Decimal(rest[0]),
    "timedelta": lambda rest, _: dt.timedelta(*rest),
    "timezone": lambda rest, _: dt.timezone(dt.timedelta(seconds=rest[0])),
    "...": lambda _, __: ...,
    "range": lambda rest, other: range(*_unpack_all(rest, other)),
    "slice": lambda rest, other: slice(*_unpack_all(rest, other)),
    "deque": lambda rest, other: deque(_unpack_all(rest[0], other), rest[1]),
    "defaultdict": lambda rest, other: defaultdict(_FACTORIES.get(rest[0]), unpack(["dict", rest[1]], other)),
    "keys": lambda rest, other: dict.fromkeys(_unpack_all(rest[0], other)).keys(),
    "items": lambda rest, other: dict(_unpack_all(rest[0], other)).items(),
    "values": lambda rest, other: dict(enumerate(_unpack_all(rest[0], other))).values(),
}


def named_tuple(name: str, fields: list[str], values: Iterable[object]) -> tuple[object, ...]:
    """Make a named tuple of this class name and these fields."""
    kind: Any = namedtuple(name, fields)  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]  its fields are data
    return kind(*values)


def update_in_place(old: Any, new: Any) -> None:
    """Make the mutable ``old`` equal to ``new`` of the same type, keeping the identity of mutable values inside it."""
    if _is(old, dict):
        merged = {key: _kept(old[key], value) if key in old else value for key, value in new.items()}
        old.clear()
        old.update(merged)
    elif _is(old, set):
        old.clear()
        old.update(new)
    else:
        items = [_kept(old[at], each) if at < len(old) else each for at, each in enumerate(new)]
        old.clear()
        old.extend(items)


def _kept(old: Any, new: Any) -> Any:
    if type(old) is not type(new) or not _is(old, MUTABLE_TYPES):
        return new
    update_in_place(old, new)
    return old
