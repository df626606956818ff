"""Puts pydantic's reasons into the words of this project's errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from protocol.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_PLAIN = {
    "Input should be": "must be",
    "greater than or equal to": "at least",
    "greater than": "above",
    "less than or equal to": "at most",
    "less than": "below",
}
_CHOICES = ("enum", "literal_error")
_OWN_WORDS = re.compile(r", unable to parse .*| or (an )?instance of \w+")
"""Parts of pydantic's reasons that say nothing to a user."""


def describe_invalid_value(problem: ErrorDetails) -> str:
    """Return why a value was rejected, as in ``must be at least 1, not 0``, with a suggestion for a misspelled choice.

    The value is left out if the error was read without inputs.
    """
    if problem["type"] == "too_short":
        return f"at least {problem.get('ctx', {})['min_length']} needed"
    reason = problem["msg"].removeprefix("Value error, ")
    if reason.startswith("Input should be"):
        for theirs, plain in _PLAIN.items():
            reason = reason.replace(theirs, plain)
    reason = _OWN_WORDS.sub("", f"{reason[0].lower()}{reason[1:]}")
    if "input" not in problem:
        return reason
    given = problem["input"]
    choices = re.findall("'([^']*)'", reason) if problem["type"] in _CHOICES else ()
    return f"{reason}, not {given!r}{did_you_mean(str(given), choices)}"


def first_invalid_value(error: ValidationError) -> tuple[str, str]:
    """Return the dotted place of the first rejected value, empty for the whole, and why it was rejected.

    The value itself is left out: it came from another program, and may be long or private.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), describe_invalid_value(first)
