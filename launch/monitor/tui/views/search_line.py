"""Parses a search line of the API's filters (docs/monitor.md) and words.  Pure.

For example, ``state=dropped reward_max=0.5 sort`` has two filters and a word.
"""

from __future__ import annotations

from launch.monitor.archive.query import PageRequest, RowFilter, parse_page_cursor
from launch.monitor.archive.query_parameters import InvalidQueryError, ListParameters


def parse_search_line(words: str) -> dict[str, str]:
    """Return a search line as the parameters of a request.  Raises InvalidQueryError."""
    found: dict[str, str] = {}
    free: list[str] = []
    for word in words.split():
        name, equals, value = word.partition("=")
        if not equals:
            free.append(word)
        elif name in {"limit", "cursor", "sort"}:
            raise InvalidQueryError(f"{name} is not a filter: press s for another order; pages load automatically")
        else:
            found[name] = value
    return found | ({"q": " ".join(free)} if free else {})


def parse_search(words: str, parameters: ListParameters, last_step: int | None) -> RowFilter:
    """Parse the search line of a list.  Raises InvalidQueryError."""
    given = parse_search_line(words)
    parameters.parse_page(given)
    return parameters.parse_filter(given, last_step)


def build_page_request(sort: str, cursor: str | None, limit: int) -> PageRequest:
    """Return the request for a page of a list."""
    return PageRequest(sort, limit, None if cursor is None else parse_page_cursor(cursor))
