"""One tab of Chromium: navigation, waiting, looking, input.  A thin layer over DevTools' calls."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from sandbox.browser import page_scripts
from sandbox.browser.accessibility import AccessibleTree, PageOutline, outline_page, quote
from sandbox.browser.addresses import explain_error
from sandbox.browser.clickable_nodes import CURSOR, PageSnapshot, find_clickable
from sandbox.browser.devtools import ANSWER_S, DevTools, DevToolsCallError, DevToolsTimeoutError, read_answer
from sandbox.browser.errors import BrowserActionError
from sandbox.browser.keyboard import key_event
from sandbox.browser.launch_command import HEIGHT, WIDTH
from sandbox.browser.observation import PageView
from sandbox.browser.tab_state import TabState

LOAD_S = 12.0
"""Maximum seconds that an action waits for a page to load."""
_REQUESTS_S, _QUIET_S = 2.5, 0.15
"""Maximum seconds that a loaded page may ask for more, and seconds without anything new after which it is ready."""
_MAX_OUTLINED = 8_000
"""Elements of a document above which its text is shown: Chromium and this process would take seconds for its tree."""
_MAX_FRAMES = 8
_MAX_TEXT = 200_000
"""Characters of a page that is shown as text."""
_QUALITIES = ((60, 1.0), (30, 1.0), (30, 0.5))
"""Qualities and scales of a picture, the first that is small enough."""
_WORLD = "longshore"
T = TypeVar("T")


class _Nothing(msgspec.Struct):
    pass


class _Navigation(msgspec.Struct, rename="camel"):
    error_text: str = ""


class _HistoryEntry(msgspec.Struct):
    id: int
    url: str
    title: str


class _History(msgspec.Struct, rename="camel"):
    current_index: int
    entries: list[_HistoryEntry]


class _RemoteObject(msgspec.Struct, rename="camel"):
    object_id: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Evaluated(msgspec.Struct, rename="camel"):
    result: _RemoteObject


class _Resolved(msgspec.Struct):
    object: _RemoteObject


class _Quads(msgspec.Struct):
    quads: list[list[float]]


class _World(msgspec.Struct, rename="camel"):
    execution_context_id: int


class _PageFacts(msgspec.Struct):
    elements: int = 0
    scrolled: int = 0
    scrollable: int = 0


class _TextSlice(msgspec.Struct):
    text: str
    length: int


class _FrameOwner(msgspec.Struct, rename="camel"):
    backend_node_id: int


class _FrameId(msgspec.Struct):
    id: str


class _FrameTree(msgspec.Struct, rename="camel"):
    frame: _FrameId
    child_frames: list[_FrameTree] = msgspec.field(default_factory=list["_FrameTree"])


class _FrameTreeAnswer(msgspec.Struct, rename="camel"):
    frame_tree: _FrameTree


class _Picture(msgspec.Struct):
    data: str


class BrowserTab:
    """A tab by its DevTools session.

    Its methods raise DevToolsCallError, DevToolsTimeoutError, and SandboxVanished, SandboxLost or SandboxDestroyed when
    Chromium or its sandbox has ended."""

    def __init__(self, devtools: DevTools, target: str, session: str) -> None:
        self._devtools, self.target, self.session = devtools, target, session
        self.state = TabState(target)
        self.load_s = LOAD_S
        """Maximum seconds that a page may take to load."""

    async def call(self, kind: type[T], method: str, timeout_s: float = ANSWER_S, /, **params: object) -> T:
        """Call a method of the tab's session; see :meth:`DevTools.call`."""
        return await self._devtools.call(kind, method, self.session, timeout_s, **params)

    def prepare(self) -> None:
        """Ask for the tab's events, and let it begin."""
        for method in ("Page.enable", "Network.enable", "Inspector.enable", "DOM.enable"):
            self._devtools.send(method, self.session)
        self._devtools.send(
            "Emulation.setDeviceMetricsOverride",
            self.session,
            width=WIDTH,
            height=HEIGHT,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._devtools.send("Runtime.runIfWaitingForDebugger", self.session)

    # ---- navigation

    async def go_to(self, url: str) -> str:
        """Begin to load a page; return Chromium's word for why it does not answer, or nothing."""
        self.state.is_loading = True  # until an event says otherwise
        try:
            answer = await self.call(_Navigation, "Page.navigate", self.load_s, url=url)
        except DevToolsTimeoutError:
            await self.stop_loading()
            return f"no answer within {self.load_s:g} s"
        if answer.error_text == "net::ERR_ABORTED":  # no page follows; after any other error Chromium shows its own
            self.state.is_loading = False
        return explain_error(answer.error_text)

    async def go_back(self) -> bool:
        """Begin to load the page before this one; return False if there is none."""
        history = await self._history()
        before = [each for each in history.entries[: history.current_index] if each.url != "about:blank"]
        if not before:
            return False
        await self.call(_Nothing, "Page.navigateToHistoryEntry", entryId=before[-1].id)
        return True

    async def stop_loading(self) -> None:
        with suppress(DevToolsCallError):  # it has just ended by itself
            await self.call(_Nothing, "Page.stopLoading")
        self.state.is_loading = False

    async def settle(self) -> bool:
        """Wait until the page has loaded and is quiet; return False if it still loads after ``load_s``."""
        now, state = asyncio.get_running_loop().time, self.state
        loaded_by, quiet_by = now() + self.load_s, now() + _REQUESTS_S
        while not state.has_crashed:
            if state.is_loading:
                quiet_by = now() + _REQUESTS_S
            until = loaded_by if state.is_loading else min(quiet_by, loaded_by)
            left_s = until - now()
            if left_s <= 0:
                return not state.is_loading
            state.changed.clear()
            happened = await self._devtools.wait_for(state.changed, min(left_s, _QUIET_S) if state.is_quiet else left_s)
            if not happened and state.is_quiet:
                return True
        return True

    # ---- looking

    async def look(self) -> PageView:
        """Return the page as it is."""
        history = await self._history()
        current = history.entries[history.current_index]
        facts = await self.evaluate(_PageFacts, page_scripts.PAGE_FACTS)
        outline = None if facts.elements > _MAX_OUTLINED else await self._outline()
        return PageView(
            url=self.state.unreachable or current.url,
            title=current.title,
            outline=outline or await self._outline_text(),
            status=self.state.status,
            scrolled_px=facts.scrolled,
            scrollable_px=facts.scrollable,
            is_text=outline is None,
        )

    async def read_text(self, begin: int, end: int) -> tuple[str, int]:
        """Return a slice of the page's text, and the length of all of it, in characters."""
        script = page_scripts.TEXT_SLICE % (page_scripts.PAGE_TEXT, begin, end)
        part = await self.evaluate(_TextSlice, script)
        return part.text, part.length

    async def take_picture(self, most_bytes: int) -> bytes | None:
        """Return the viewport as a JPEG of at most ``most_bytes``; None if there is none."""
        for quality, scale in _QUALITIES:
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": scale}
            whole = {} if scale == 1 else {"clip": clip}
            try:
                shot = await self.call(_Picture, "Page.captureScreenshot", format="jpeg", quality=quality, **whole)
            except (DevToolsCallError, DevToolsTimeoutError):
                return None
            if len(picture := base64.b64decode(shot.data)) <= most_bytes:
                return picture
        return None

    async def evaluate(self, kind: type[T], script: str) -> T:
        """Return a script's value."""
        return read_answer((await self._run(script, by_value=True)).value, kind)

    async def _run(self, script: str, *, by_value: bool) -> _RemoteObject:
        call = {"expression": script, "returnByValue": by_value, "contextId": await self._world()}
        return (await self.call(_Evaluated, "Runtime.evaluate", **call)).result

    async def _world(self) -> int:
        """Return the world of scripts that see the page's elements, and nothing that the page's own scripts define."""
        frame = self.state.main_frame
        world = await self.call(_World, "Page.createIsolatedWorld", frameId=frame, worldName=_WORLD)
        return world.execution_context_id

    async def _outline(self) -> PageOutline | None:
        """Return the page's outline; None if Chromium takes too long for it."""
        try:
            tree = await self.call(AccessibleTree, "Accessibility.getFullAXTree")
            return outline_page(tree, await self._inner_trees(), await self._clickable_nodes())
        except DevToolsTimeoutError:
            return None

    async def _clickable_nodes(self) -> frozenset[int]:
        try:
            found = await self.call(PageSnapshot, "DOMSnapshot.captureSnapshot", computedStyles=[CURSOR])
        except (DevToolsCallError, DevToolsTimeoutError):  # the page is shown all the same
            return frozenset()
        return find_clickable(found)

    async def _outline_text(self) -> PageOutline:
        text, _ = await self.read_text(0, _MAX_TEXT)
        return PageOutline([f"text {quote(line.strip())}" for line in text.splitlines() if line.strip()])

    async def _inner_trees(self) -> Mapping[int, AccessibleTree]:
        top = (await self.call(_FrameTreeAnswer, "Page.getFrameTree")).frame_tree
        frames, found = [*top.child_frames], dict[int, AccessibleTree]()
        while frames and len(found) < _MAX_FRAMES:
            frame = frames.pop(0)
            frames += frame.child_frames
            try:
                owner = await self.call(_FrameOwner, "DOM.getFrameOwner", frameId=frame.frame.id)
                tree = await self.call(AccessibleTree, "Accessibility.getFullAXTree", frameId=frame.frame.id)
            except DevToolsCallError:  # the frame has gone
                continue
            found[owner.backend_node_id] = tree
        return found

    async def _history(self) -> _History:
        return await self.call(_History, "Page.getNavigationHistory")

    # ---- elements and input

    async def find(self, selector: str) -> str:
        """Return the object of the first element of a CSS selector; empty if there is none.

        Raises BrowserActionError for what is no selector."""
        script = page_scripts.FIND % msgspec.json.encode(selector).decode()
        result = await self._run(script, by_value=False)
        if bytes(result.value) == b'"invalid"':
            raise BrowserActionError(f"{selector!r} is not a CSS selector")
        return result.object_id

    async def resolve(self, backend_node_id: int) -> str:
        """Return the object of an element.  Raises DevToolsCallError if it is no longer on the page."""
        return (await self.call(_Resolved, "DOM.resolveNode", backendNodeId=backend_node_id)).object.object_id

    async def apply(self, function: str, element: str, *arguments: object) -> str:
        """Return the text that a function of an element returns."""
        given = [{"value": each} for each in arguments]
        found = await self.call(
            _Evaluated,
            "Runtime.callFunctionOn",
            functionDeclaration=function,
            objectId=element,
            arguments=given,
            returnByValue=True,
            userGesture=True,
        )
        return read_answer(found.result.value, str)

    async def middle_of(self, element: str) -> tuple[float, float] | None:
        """Scroll an element into view and return its middle; None if it has no place in the window."""
        try:
            await self.call(_Nothing, "DOM.scrollIntoViewIfNeeded", objectId=element)
            quads = (await self.call(_Quads, "DOM.getContentQuads", objectId=element)).quads
        except DevToolsCallError:
            return None
        for quad in quads:
            x, y = sum(quad[::2]) / 4, sum(quad[1::2]) / 4
            if quad[0] != quad[4] and quad[1] != quad[5] and 0 <= x < WIDTH and 0 <= y < HEIGHT:
                return x, y
        return None

    async def click_at(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            await self.call(_Nothing, "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    async def turn_wheel(self, pixels: int) -> None:
        await self.call(
            _Nothing,
            "Input.dispatchMouseEvent",
            type="mouseWheel",
            x=WIDTH / 2,
            y=HEIGHT / 2,
            deltaX=0,
            deltaY=pixels,
        )

    async def insert_text(self, text: str) -> None:
        await self.call(_Nothing, "Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key.  Raises BrowserActionError for one that does not exist."""
        event = key_event(key)
        await self.call(
            _Nothing, "Input.dispatchKeyEvent", type="keyDown" if "text" in event else "rawKeyDown", **event
        )
        await self.call(_Nothing, "Input.dispatchKeyEvent", type="keyUp", **event)
