"""The browser's actions, by the names and arguments that LIVEWEB's agents know.

Elements have numbers in the observation (``id``); LIVEWEB's own ways to name them, a CSS selector or role and name,
work too.  Each action returns the page that it leads to.
https://github.com/AffineFoundation/liveweb-arena
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from sandbox.browser import actions
from sandbox.browser.accessibility import PageOutline
from sandbox.browser.actions import ElementQuery
from sandbox.browser.addresses import read_address
from sandbox.browser.browser import SandboxBrowser
from sandbox.browser.errors import BrowserActionError
from sandbox.browser.observation import BrowserObservation
from sandbox.browser.tab import BrowserTab
from sandbox.tools.tool import (
    SandboxTool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolParameter,
    ToolResult,
    flag_argument,
    seconds_argument,
    text_argument,
)

_SCROLL_PX, _WAIT_S, _LONGEST_WAIT_S = 300, 2.0, 10.0
_MAX_PIXELS = 100_000
_ID = ToolParameter("id", "integer", "Number of the element.", required=False)
_SELECTOR = ToolParameter("selector", "string", "CSS selector, instead of a number.", required=False)
_TEXT = ToolParameter("text", "string", "Text that replaces what the field holds.")
_ENTER = ToolParameter("press_enter", "boolean", "Press Enter afterwards (default false).", required=False)
_ROLE = ToolParameter("role", "string", "Role of the element, such as button.")
_NAME = ToolParameter("name", "string", "Its name, or a part of it.")
_EXACT = ToolParameter("exact", "boolean", "The name is the whole name (default false).", required=False)
_UP_OR_DOWN = ToolParameter("direction", "string", "'up' or 'down'.")
RunAction: TypeAlias = Callable[[SandboxBrowser, ToolArguments, int], Awaitable[BrowserObservation]]
"""Does what a call asks for, and returns what the page then shows in so many characters."""
ReadQuery: TypeAlias = Callable[[ToolArguments], ElementQuery]
"""Reads from a call which element is meant."""


def _tool(
    name: str,
    description: str,
    parameters: tuple[ToolParameter, ...],
    run: RunAction,
) -> SandboxTool:
    async def call(context: ToolContext, arguments: ToolArguments) -> ToolResult:
        if context.browser is None:
            raise ToolError("there is no browser in this sandbox")
        try:
            shown = await run(context.browser, arguments, context.output_chars)
        except BrowserActionError as error:
            raise ToolError(str(error)) from error
        return ToolResult(shown.text, raw=shown.text, picture=shown.picture)

    return SandboxTool(name, description, parameters, call)


async def _goto(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    address = read_address(text_argument(arguments, "url"))

    async def act(tab: BrowserTab, outline: PageOutline) -> str:
        del outline
        error = await tab.go_to(address)
        return f"{address} did not open: {error}" if error else ""

    return await browser.act(act, budget)


def _clicker(read_query: ReadQuery) -> RunAction:
    async def run(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
        query = read_query(arguments)
        return await browser.act(lambda tab, outline: actions.click(tab, outline, query), budget)

    return run


def _typist(read_query: ReadQuery) -> RunAction:
    async def run(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
        query, text = read_query(arguments), text_argument(arguments, "text")
        enter = flag_argument(arguments, "press_enter", default=False)
        return await browser.act(
            lambda tab, outline: actions.type_text(tab, outline, query, text, press_enter=enter), budget
        )

    return run


async def _press(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    key = text_argument(arguments, "key")

    async def act(tab: BrowserTab, outline: PageOutline) -> str:
        del outline
        await tab.press(key)
        return f"Pressed {key}."

    return await browser.act(act, budget)


async def _scroll(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    sign = _read_direction(arguments)
    pixels = sign * min(abs(_read_integer(arguments, "amount", _SCROLL_PX)), _MAX_PIXELS)

    async def act(tab: BrowserTab, outline: PageOutline) -> str:
        del outline
        await tab.turn_wheel(pixels)
        return ""

    return await browser.act(act, budget)


async def _view_more(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    return await browser.turn_page(_read_direction(arguments), budget)


async def _back(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    del arguments

    async def act(tab: BrowserTab, outline: PageOutline) -> str:
        del outline
        return "" if await tab.go_back() else "There is no page before this one."

    return await browser.act(act, budget)


async def _wait(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    await asyncio.sleep(seconds_argument(arguments, "seconds", _WAIT_S, _LONGEST_WAIT_S))
    return await browser.observe(budget)


async def _read(browser: SandboxBrowser, arguments: ToolArguments, budget: int) -> BrowserObservation:
    return await browser.read(max(_read_integer(arguments, "part", 1), 1) - 1, budget)


def _read_query(arguments: ToolArguments) -> ElementQuery:
    """Return the element that ``id`` or ``selector`` names.  Raises ToolError."""
    if "id" in arguments:
        return ElementQuery(number=_read_integer(arguments, "id", 0))
    if selector := text_argument(arguments, "selector", ""):
        return ElementQuery(selector=selector)
    raise ToolError("no element is named: give its number as 'id', or a CSS 'selector'")


def _read_role(arguments: ToolArguments) -> ElementQuery:
    role, name = text_argument(arguments, "role"), text_argument(arguments, "name", "")
    return ElementQuery(role=role, name=name, exact=flag_argument(arguments, "exact", default=False))


def _read_direction(arguments: ToolArguments) -> int:
    """Return 1 for down and -1 for up.  Raises ToolError."""
    direction = text_argument(arguments, "direction").strip().lower()
    if direction not in {"up", "down"}:
        raise ToolError("argument 'direction' must be 'up' or 'down'")
    return 1 if direction == "down" else -1


def _read_integer(arguments: ToolArguments, name: str, default: int) -> int:
    """Return a whole number, which a model may have written as a string or in brackets.  Raises ToolError."""
    value = arguments.get(name, default)
    try:
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return int(float(value.strip().strip("[]")) if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        pass
    raise ToolError(f"argument '{name}' must be a whole number")


BROWSER_TOOLS = (
    _tool("goto", "Open a page.", (ToolParameter("url", "string", "Its address."),), _goto),
    _tool("click", "Click an element, or choose an option.", (_ID, _SELECTOR), _clicker(_read_query)),
    _tool("type", "Type into a field.", (_ID, _SELECTOR, _TEXT, _ENTER), _typist(_read_query)),
    _tool(
        "press",
        "Press a key.",
        (ToolParameter("key", "string", "Enter, Escape, Tab, ArrowDown … or a character."),),
        _press,
    ),
    _tool(
        "scroll",
        "Scroll the page.",
        (_UP_OR_DOWN, ToolParameter("amount", "integer", "Pixels (default 300).", required=False)),
        _scroll,
    ),
    _tool(
        "view_more", "Show the next or the previous part of a page that is shown in parts.", (_UP_OR_DOWN,), _view_more
    ),
    _tool(
        "read",
        "Read the page's text, without elements.",
        (ToolParameter("part", "integer", "Number of the part (default 1).", required=False),),
        _read,
    ),
    _tool("back", "Go back to the page before.", (), _back),
    _tool(
        "wait",
        "Wait, then look again.",
        (ToolParameter("seconds", "number", "Seconds (default 2, at most 10).", required=False),),
        _wait,
    ),
    _tool(
        "click_role",
        "Click an element that is named by its role and name.",
        (_ROLE, _NAME, _EXACT),
        _clicker(_read_role),
    ),
    _tool(
        "type_role", "Type into a field that is named so.", (_ROLE, _NAME, _TEXT, _ENTER, _EXACT), _typist(_read_role)
    ),
)
