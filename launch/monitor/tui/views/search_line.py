"""Parses a search line of the API's filters (docs/monitor.md) and words.  Pure.

For example, ``state=dropped reward_max=0.5 sort`` has two filters and a word.
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
            raise InvalidQueryError(f"{name} is not a filter: press s for another order; pages load automatically")
        else:
            found[name] = value
    return found | ({"q": " ".join(free)} if free else {})


def parse_trajectory_search(words: str, last_step: int | None) -> TrajectoryFilter:
    """Parse the search line of trajectories.  Raises InvalidQueryError."""
    parameters = parse_search_line(words)
    query_parameters.parse_trajectory_page(parameters)
    return query_parameters.parse_trajectory_filter(parameters, last_step)


def parse_group_search(words: str, last_step: int | None) -> GroupFilter:
    parameters = parse_search_line(words)
    query_parameters.parse_group_page(parameters)
    return query_parameters.parse_group_filter(parameters, last_step)


def build_page_request(sort: str, cursor: str | None, limit: int) -> PageRequest:
    """Return the request for a page of a list."""
    return PageRequest(sort, limit, None if cursor is None else parse_page_cursor(cursor))
