"""Actions on the elements of a page, as a person does them: with a mouse and a keyboard.

What a mouse cannot do to a page without windows of its own, such as choosing from a list, is done by a script.  All
raise BrowserActionError if the agent names what is not there or cannot be used, and as :class:`BrowserTab` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sandbox.browser import page_scripts
from sandbox.browser.accessibility import PageElement, PageOutline, quote
from sandbox.browser.devtools import DevToolsCallError
from sandbox.browser.errors import BrowserActionError
from sandbox.browser.tab import BrowserTab

_DONE = "done"
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True)
class ElementQuery:
    """The element that an agent means: by its number, by a CSS selector, or by role and name."""

    number: int | None = None
    selector: str = ""
    role: str = ""
    name: str = ""
    exact: bool = False
    """The name is the whole name."""


class _FoundElement(NamedTuple):
    label: str
    object_id: str


async def click(tab: BrowserTab, outline: PageOutline, query: ElementQuery) -> str:
    """Click an element; return a sentence about it."""
    found = await _find(tab, outline, query)
    refusal = await tab.apply(page_scripts.PRESS_BY_SCRIPT, found.object_id)
    if refusal == _DONE:
        return f"Chose {found.label}."
    if refusal:
        raise BrowserActionError(f"{found.label} {refusal}")
    if (middle := await tab.middle_of(found.object_id)) is None:
        await tab.apply(page_scripts.CLICK_BY_SCRIPT, found.object_id)
        return f"Clicked {found.label}, which is not visible."
    cover = await tab.apply(page_scripts.COVERED_BY, found.object_id)
    await tab.click_at(*middle)
    return f"Clicked where {found.label} is; in front of it is {cover}." if cover else f"Clicked {found.label}."


async def type_text(tab: BrowserTab, outline: PageOutline, query: ElementQuery, text: str, *, press_enter: bool) -> str:
    """Replace what an element holds by ``text``, and press Enter there if wanted; return a sentence about it."""
    found = await _find(tab, outline, query)
    refusal = await tab.apply(page_scripts.PREPARE_TYPING, found.object_id, text)
    if refusal not in {"", _DONE}:
        raise BrowserActionError(f"{found.label} {refusal}")
    if not refusal:
        await (tab.insert_text(text) if text else tab.press("Delete"))
    if press_enter:
        await tab.press("Enter")
    return f"Typed into {found.label}{' and pressed Enter' if press_enter else ''}."


async def _find(tab: BrowserTab, outline: PageOutline, query: ElementQuery) -> _FoundElement:
    if query.selector:
        if object_id := await tab.find(query.selector):
            return _FoundElement(f"the element {query.selector!r}", object_id)
        raise BrowserActionError(f"no element of the page matches the selector {query.selector!r}")
    element = _by_number(outline, query.number) if query.number is not None else _by_name(outline, query)
    label = f"[{element.number}] {element.role}{f' {quote(element.name, 80)}' if element.name else ''}"
    try:
        return _FoundElement(label, await tab.resolve(element.backend_node_id))
    except DevToolsCallError:
        raise BrowserActionError(f"{label} is no longer on the page: wait, or name another element") from None


def _by_number(outline: PageOutline, number: int) -> PageElement:
    if element := outline.find(number):
        return element
    there = f"its elements are 1 to {len(outline.elements)}" if outline.elements else "it has no elements with numbers"
    raise BrowserActionError(f"the page has no element {number}: {there}")


def _by_name(outline: PageOutline, query: ElementQuery) -> PageElement:
    role, name = query.role.lower(), " ".join(query.name.split())
    of_role = [each for each in outline.elements if each.role.lower() == role]
    equal = [each for each in of_role if each.name == name]
    if found := equal or [each for each in of_role if not query.exact and name.lower() in each.name.lower()]:
        return found[0]
    if not of_role:
        roles = ", ".join(sorted({each.role for each in outline.elements})) or "none"
        raise BrowserActionError(f"no element of the page has the role {query.role!r}: the roles are {roles}")
    names = ", ".join(quote(each.name, 60) for each in of_role[:_SHOWN_NAMES])
    more = f" and {len(of_role) - _SHOWN_NAMES} more" if len(of_role) > _SHOWN_NAMES else ""
    raise BrowserActionError(f"no {query.role} of the page has the name {query.name!r}: there are {names}{more}")
