"""What is written into a search line: the filters of the API (docs/monitor.md), and words.  Pure.

``state=dropped reward_max=0.5 sort`` are two filters and a word; what a filter may be is what the API says.
"""

from __future__ import annotations

from launch.monitor.archive.query import Ask, GroupFilter, TrajectoryFilter, parse_position
from launch.monitor.web import parameters
from launch.monitor.web.answers import RefusedError


def given(words: str) -> dict[str, str]:
    """As parameters of a request.  Raises RefusedError."""
    found: dict[str, str] = {}
    free: list[str] = []
    for word in words.split():
        name, equals, value = word.partition("=")
        if not equals:
            free.append(word)
        elif name in {"limit", "cursor", "sort"}:
            raise RefusedError(400, f"{name} is no filter: s changes the order, and pages come by themselves")
        else:
            found[name] = value
    return found | ({"q": " ".join(free)} if free else {})


def trajectory_filter(words: str, last_step: int | None) -> TrajectoryFilter:
    """Raises RefusedError, as the next one does."""
    asked = given(words)
    parameters.trajectory_ask(asked)
    return parameters.trajectory_filter(asked, last_step)


def group_filter(words: str, last_step: int | None) -> GroupFilter:
    asked = given(words)
    parameters.group_ask(asked)
    return parameters.group_filter(asked, last_step)


def part(sort: str, cursor: str | None, limit: int) -> Ask:
    """Of a list.  ``cursor``: of the store's own."""
    return Ask(sort, limit, None if cursor is None else parse_position(cursor))
