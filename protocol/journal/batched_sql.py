"""Statements with many rows.

Each statement releases the GIL and then waits for the event loop to get it back, so one statement per row would spend
most of its time waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_ROWS = 128
"""Rows per statement."""

_Item = TypeVar("_Item")


def statement_batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Yield slices of ``items``, each small enough for one statement."""
    for first in range(0, len(items), _ROWS):
        yield items[first : first + _ROWS]


def placeholders(rows: int, columns: int = 0) -> str:
    """Return question marks for ``rows`` rows of ``columns`` values, or without ``columns`` for one list of values."""
    if not columns:
        return f"({', '.join(['?'] * rows)})"
    return ", ".join([placeholders(columns)] * rows)
