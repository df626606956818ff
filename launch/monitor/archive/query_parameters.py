"""Parses the query parameters of the API, and of the terminal UI's search line, into filters.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from launch.monitor.api_types import TrajectoryState
from launch.monitor.archive.query import (
    GROUP_SORTS,
    TRAJECTORY_SORTS,
    PageRequest,
    RowFilter,
    ValueRange,
    parse_page_cursor,
)
from protocol.cli.suggestions import did_you_mean
from protocol.errors import LongshoreError

Parameters = Mapping[str, str]

MAX_ROWS = 500
_PAGE = ("limit", "cursor", "sort")


class InvalidQueryError(LongshoreError):
    """A query parameter is invalid."""


def parse_integer(given: Parameters, name: str, default: int, *, low: int = 0, high: int = (1 << 53) - 1) -> int:
    """Return a whole number within bounds.  Raises InvalidQueryError, as all functions here do."""
    text = given.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17 and low <= int(text) <= high):
        raise InvalidQueryError(f"{name}={text[:40]!r}: a whole number from {low} to {high}")
    return int(text)


def parse_number(given: Parameters, name: str) -> float | None:
    """Return a number; None if none is given."""
    text = given.get(name, "")
    try:
        value = float(text) if text else None
    except ValueError:
        value = np.nan
    if value is not None and not np.isfinite(value):
        raise InvalidQueryError(f"{name}={text[:40]!r} is not a number")
    return value


def reject_unknown(given: Parameters, known: Sequence[str]) -> None:
    """Refuse unknown parameters: a misspelt filter would show everything."""
    for name in given:
        if name not in known:
            raise InvalidQueryError(f"unknown parameter {name[:40]!r}{did_you_mean(name, known)}")


@dataclass(frozen=True, slots=True)
class ListParameters:
    """The parameters of one list."""

    filters: Sequence[str]
    states: Sequence[str]
    sorts: Sequence[str]

    def parse_page(self, given: Parameters) -> PageRequest:
        """Return the requested page; unknown parameters are refused, those of filters too."""
        reject_unknown(given, (*_PAGE, *self.filters))
        sort, cursor = given.get("sort", self.sorts[0]), given.get("cursor", "")
        if sort not in self.sorts:
            raise InvalidQueryError(f"sort={sort[:40]!r}: one of {', '.join(self.sorts)}")
        try:
            after = parse_page_cursor(cursor) if cursor else None
        except ValueError:
            raise InvalidQueryError(f"cursor={cursor[:40]!r} is not valid: leave it out for the first page") from None
        return PageRequest(sort, parse_integer(given, "limit", 100, low=1, high=MAX_ROWS), after)

    def parse_filter(self, given: Parameters, last_step: int | None) -> RowFilter:
        """Return the filter; ``step=last`` means ``last_step``."""
        states = _words(given, "state")
        if unknown := [state for state in states if state not in self.states]:
            raise InvalidQueryError(f"state={unknown[0][:40]!r}: of {', '.join(self.states)}")
        return RowFilter(
            step=_step(given, last_step),
            group=parse_integer(given, "group", 0) if given.get("group") else None,
            states=states,
            statuses=_words(given, "status"),
            reasons=_words(given, "reason"),
            task=given.get("task", ""),
            words=given.get("q", ""),
            reward=_bounds(given, "reward"),
            sampled=_bounds(given, "sampled"),
            passed=_passed(given),
        )


_GROUPS = ("step", "state", "reason", "task", "q", "reward_min", "reward_max")
TRAJECTORY_LIST = ListParameters(
    (*_GROUPS, "group", "status", "passed", "sampled_min", "sampled_max"), tuple(TrajectoryState), TRAJECTORY_SORTS
)
GROUP_LIST = ListParameters(_GROUPS, ("open", "buffered", "trained", "dropped", "mixed"), GROUP_SORTS)
STEP_LIST = ListParameters((), (), ("newest",))


def _step(given: Parameters, last_step: int | None) -> int | None:
    if not given.get("step"):
        return None
    if given["step"] == "last":
        return -2 if last_step is None else last_step  # there is no last step yet: match nothing
    return parse_integer(given, "step", 0)


def _words(given: Parameters, name: str) -> tuple[str, ...]:
    return tuple(filter(None, given.get(name, "").split(",")))


def _bounds(given: Parameters, name: str) -> ValueRange:
    low, high = parse_number(given, f"{name}_min"), parse_number(given, f"{name}_max")
    return ValueRange(-np.inf if low is None else low, np.inf if high is None else high)


def _passed(given: Parameters) -> bool | None:
    text = given.get("passed", "")
    if text not in {"", "true", "false"}:
        raise InvalidQueryError(f"passed={text[:40]!r}: true or false")
    return None if not text else text == "true"
