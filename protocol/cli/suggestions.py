"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
