"""Drafts of tasks of the web, as their families draw them: the question, what is right, and the oracle's actions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sandbox.tasks.sites.site_services import site_url

Action = dict[str, Any]
"""An action of the browser as an agent writes it, ``{"type", "params"}``."""
DONE = "done"
"""Answer of a task that only asks for a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebTaskDraft:
    """One instance of a family, about one site of ours."""

    site: str
    question: str
    actions: tuple[Action, ...]
    """The oracle's actions before it stops with the answer."""
    answer: dict[str, Any] | None = None
    state: tuple[tuple[str, Sequence[Sequence[str | int]]], ...] = ()
    """SQL and its rows."""


class NoInstance(Exception):
    """The site's data of this seed has no clear instance of the family; another may have."""


WebTaskFamily = Callable[[random.Random, int], WebTaskDraft]
"""Draws an instance; the number is the seed of the site."""


def require(*conditions: object) -> None:
    """Raise NoInstance unless all conditions hold."""
    if not all(conditions):
        raise NoInstance


def go_to(site: str, path: str = "", **query: str) -> Action:
    url = f"{site_url(site)}{path}" + (f"?{urlencode(query)}" if query else "")
    return {"type": "goto", "params": {"url": url}}


def click(role: str, name: str) -> Action:
    return {"type": "click_role", "params": {"role": role, "name": name, "exact": True}}


def type_text(field: str, text: str) -> Action:
    return {"type": "type_role", "params": {"role": "textbox", "name": field, "exact": True, "text": text}}


def log_in(site: str, user: tuple[str, str], path: str) -> tuple[Action, ...]:
    """Return the actions that log a user in and lead to a path of the site."""
    name, password = user
    return (
        go_to(site, "login", next=f"/{path}"),
        type_text("User name", name),
        type_text("Password", password),
        click("button", "Log in"),
    )
