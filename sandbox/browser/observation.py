"""Formats a page for an agent: its address, its title and a part of its lines, within a budget.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sandbox.browser.accessibility import PageOutline, quote

_MAX_ADDRESS = 500
_FOOT_CHARS = 110
"""Characters that are left for the line below a part."""


@dataclass(frozen=True, slots=True)
class BrowserObservation:
    """A page as the agent and people see it after an action."""

    text: str
    picture: bytes | None
    """A JPEG of the viewport; None if there is none that is small enough."""


@dataclass(frozen=True, slots=True)
class PageView:
    """A page at one moment."""

    url: str
    title: str
    outline: PageOutline = field(default_factory=PageOutline)
    status: int = 200
    """HTTP status of the document."""
    scrolled_px: int = 0
    scrollable_px: int = 0
    """Height of the page without one screen of it."""
    is_text: bool = False
    """The lines are the page's text, because it is too large for an outline."""


def format_view(view: PageView, notes: Sequence[str], part: int, budget: int) -> tuple[str, int]:
    """Return what the agent is shown of ``part`` of a page, counted from 0, and the part that it is.

    A part that does not exist is the nearest that does.  The text has at most ``budget`` characters, of which the notes
    and the page's address, title and place have at most half.
    """
    head = _cut_text("\n".join([*notes, *_head(view)]), budget // 2)
    room = max(budget - len(head) - 1 - _FOOT_CHARS, 1)
    parts = list(_cut(view.outline.lines, room)) or [["(the page is empty)"]]
    part = min(max(part, 0), len(parts) - 1)
    return _cut_text("\n".join([head, *parts[part], *_foot(part, len(parts))]), budget), part


def format_text_part(text: str, part: int, parts: int) -> str:
    """Return a part of a page's text as ``read`` shows it, counted from 0."""
    more = f'; "read" with "part": {part + 2} shows the next' if part + 1 < parts else ""
    return f"{text or '(the page has no text)'}\n[part {part + 1} of {parts} of the page's text{more}]"


def _head(view: PageView) -> Iterator[str]:
    yield f"URL: {quote(view.url, _MAX_ADDRESS)[1:-1]}"
    yield f"Title: {quote(view.title)}"
    if view.status >= 400:
        yield f"HTTP status: {view.status}"
    if view.scrollable_px > 0:
        yield f"Scrolled: {view.scrolled_px} of {view.scrollable_px} px"
    if view.is_text:
        yield "The page is too large to list its elements: this is its text. Name elements by a CSS selector."


def _foot(part: int, parts: int) -> Iterator[str]:
    if parts > 1:
        ways = [way for way, there in (('"up"', part > 0), ('"down"', part + 1 < parts)) if there]
        yield f'[part {part + 1} of {parts} of the page; "view_more" with "direction": {" or ".join(ways)} shows more]'


def _cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"


def _cut(lines: Sequence[str], room: int) -> Iterator[list[str]]:
    """Yield the lines in parts of at most ``room`` characters; a longer line is cut."""
    part, used = list[str](), 0
    for line in lines:
        shown = _cut_text(line, room - 1)
        if part and used + len(shown) + 1 > room:
            yield part
            part, used = [], 0
        part.append(shown)
        used += len(shown) + 1
    if part:
        yield part
