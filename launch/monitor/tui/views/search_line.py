"""Parses a search line: the filters of the API (docs/monitor.md), and words.  Pure.

``state=dropped reward_max=0.5 sort`` are two filters and a word; what a filter may be is what the API says.
"""

from __future__ import annotations

from launch.monitor.archive import query_parameters
from launch.monitor.archive.query import GroupFilter, PageRequest, TrajectoryFilter, parse_page_cursor
from launch.monitor.archive.query_parameters import InvalidQueryError


def parse_search_line(words: str) -> dict[str, str]:
    """Return a search line as the parameters of a request.  Raises InvalidQueryError."""
    found: dict[str, str] = {}
    free: list[str] = []
    for word in words.split():
        name, equals, value = word.partition("=")
        if not equals:
            free.append(word)
        elif name in {"limit", "cursor", "sort"}:
            raise InvalidQueryError(f"{name} is no filter: s changes the order, and pages come by themselves")
        else:
            found[name] = value
    return found | ({"q": " ".join(free)} if free else {})


def parse_trajectory_search(words: str, last_step: int | None) -> TrajectoryFilter:
    """Raises InvalidQueryError, as the next one does."""
    asked = parse_search_line(words)
    query_parameters.parse_trajectory_page(asked)
    return query_parameters.parse_trajectory_filter(asked, last_step)


def parse_group_search(words: str, last_step: int | None) -> GroupFilter:
    asked = parse_search_line(words)
    query_parameters.parse_group_page(asked)
    return query_parameters.parse_group_filter(asked, last_step)


def build_page_request(sort: str, cursor: str | None, limit: int) -> PageRequest:
    """Return the request for a page of a list; ``cursor`` is the store's own."""
    return PageRequest(sort, limit, None if cursor is None else parse_page_cursor(cursor))
