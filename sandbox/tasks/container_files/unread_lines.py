"""The lines of a file that have not been read yet; a later one is found in the same time, however many they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class UnreadLines:
    """A queue of lines."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._at = list(lines), 0
        self._places: dict[bool, dict[str, list[int]]] = {}
        """Numbers of the lines by their text, without tabs at its beginning or with them."""

    def __bool__(self) -> bool:
        return self._at < len(self._lines)

    @property
    def taken(self) -> int:
        """Number of lines that have been taken."""
        return self._at

    def take(self) -> str:
        """Take the next line, which must exist."""
        self._at += 1
        return self._lines[self._at - 1]

    def take_until(self, end: str, *, without_tabs: bool) -> list[str] | None:
        """Take the next line that is ``end`` and return those before it; None if there is no such line.

        ``without_tabs``: lines begin after their tabs."""
        places = self._find_places(without_tabs=without_tabs).get(end, [])
        index = bisect_left(places, self._at)
        if index == len(places):
            return None
        taken = self._lines[self._at : places[index]]
        self._at = places[index] + 1
        return [line.lstrip("\t") for line in taken] if without_tabs else taken

    def _find_places(self, *, without_tabs: bool) -> dict[str, list[int]]:
        if without_tabs not in self._places:
            places: dict[str, list[int]] = {}
            for number, line in enumerate(self._lines):
                places.setdefault(line.lstrip("\t") if without_tabs else line, []).append(number)
            self._places[without_tabs] = places
        return self._places[without_tabs]
