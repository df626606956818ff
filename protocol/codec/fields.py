"""Typed reading of parsed JSON: a missing or wrong field is a CodecError that names it."""

from __future__ import annotations

import math
from typing import cast

from protocol.codec.errors import CodecError

INT64 = 1 << 63


class Fields:
    """One JSON object."""

    __slots__ = ("_values",)

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise CodecError("expected a JSON object")
        self._values = cast("dict[str, object]", value)

    def text(self, key: str) -> str:
        value = self._values.get(key)
        if not isinstance(value, str):
            raise wrong(key, "text")
        return value

    def flag(self, key: str) -> bool:
        value = self._values.get(key)
        if not isinstance(value, bool):
            raise wrong(key, "true or false")
        return value

    def integer(self, key: str, low: int = 0, end: int = INT64) -> int:
        """An integer in ``[low, end)``."""
        value = self._values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value < end:
            raise wrong(key, f"an integer in [{low}, {end})")
        return value

    def number(self, key: str) -> float:
        value = self._values.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise wrong(key, "a finite number")
        return float(value)

    def numbers(self, key: str) -> dict[str, float]:
        fields = self.child(key)
        return {name: fields.number(name) for name in fields.names()}

    def names(self) -> list[str]:
        return list(self._values)

    def child(self, key: str) -> Fields:
        return Fields(self._values.get(key))

    def children(self, key: str) -> list[Fields]:
        return [Fields(item) for item in self.column(key)]

    def column(self, key: str) -> list[object]:
        value = self._values.get(key)
        if not isinstance(value, list):
            raise wrong(key, "a list")
        return cast("list[object]", value)


def wrong(key: str, expected: str) -> CodecError:
    return CodecError(f"field {key!r} is not {expected}")
