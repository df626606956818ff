"""Many rows in one statement.

Each statement gives Python's lock away while it runs and waits for the event loop to have it back, so that with one for
each row most of the time would be waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_ROWS = 128
"""Of a statement."""

_Item = TypeVar("_Item")


def statement_batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """What one statement takes of them."""
    for first in range(0, len(items), _ROWS):
        yield items[first : first + _ROWS]


def placeholders(rows: int, columns: int = 0) -> str:
    """Question marks for so many rows, or, without columns, for the values of one list in brackets."""
    if not columns:
        return f"({', '.join(['?'] * rows)})"
    return ", ".join([placeholders(columns)] * rows)
