"""Chromium in a sandbox, for one episode.

Its process belongs to the agent's user and ends with the container.  It has one tab that the agent sees: the newest
that a page has opened.  What happens by itself is told with the next observation: dialogs, which are accepted;
downloads, which are refused; tabs that open and close; a page that crashes or hangs, which is opened again.  Chromium's
own end is the sandbox's (SandboxVanished): no reward follows from it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Self

import msgspec

from protocol.run_directory.page_pictures import PICTURE_BYTES
from sandbox.browser.accessibility import PageOutline, quote
from sandbox.browser.addresses import BLANK
from sandbox.browser.devtools import DevTools, DevToolsCallError, DevToolsEvent, DevToolsTimeoutError
from sandbox.browser.errors import BrowserActionError
from sandbox.browser.launch_command import LOG_NAME, launch_command
from sandbox.browser.observation import BrowserObservation, PageView, format_text_part, format_view
from sandbox.browser.tab import LOAD_S, BrowserTab
from sandbox.docker.network.proxy_address import PROXY_SAYS
from sandbox.errors import SandboxStartError, SandboxVanished
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.slots import NoFreeSlotError

START_S = 120.0
"""Maximum seconds until Chromium has started."""
_LOOKS, _PAUSE_S = 8, 0.25
"""Times that a page is looked at until it is there, and seconds between two."""
_LOG_CHARS = 300
_REFUSED = f'text "{PROXY_SAYS}'
"""How the line begins that shows a page which the sandbox's proxy refused."""
_READ_FOOT_CHARS = 100
"""Characters that are left for the last line of a part of a page's text."""
TabAction = Callable[[BrowserTab, PageOutline], Awaitable[str]]
"""Does something in a tab and returns a sentence about it; the outline is the page's that the agent was shown."""


class _TargetInfo(msgspec.Struct, rename="camel"):
    target_id: str
    type: str


class _Attached(msgspec.Struct, rename="camel"):
    session_id: str
    target_info: _TargetInfo


class _Detached(msgspec.Struct, rename="camel"):
    session_id: str


class _Dialog(msgspec.Struct, rename="camel"):
    default_prompt: str = ""


class _Download(msgspec.Struct, rename="camel"):
    url: str
    suggested_filename: str = ""


class SandboxBrowser:
    """A Chromium that runs; :meth:`open` starts it."""

    def __init__(self, session: SandboxSession) -> None:
        self._devtools = DevTools(session, self._on_event)
        self._tabs: list[BrowserTab] = []
        self._tabs_changed = asyncio.Event()
        self._outline, self._part = PageOutline(), 0
        self._url: str = BLANK
        self._notes: list[str] = []

    @classmethod
    async def open(cls, session: SandboxSession, start_url: str, budget: int) -> tuple[Self, BrowserObservation]:
        """Start Chromium with a page, by default a blank one, and return what it shows in ``budget`` characters.

        Raises SandboxStartError if Chromium does not start or the page does not answer.
        """
        browser, home = cls(session), f"/tmp/browser-{secrets.token_hex(8)}"  # noqa: S108  a new folder of the agent's user, in a sandbox of its own
        try:
            async with asyncio.timeout(START_S):
                await browser._start(session, home)
            observation = await browser._open_first(start_url or BLANK, budget)
        except (
            OSError,
            TimeoutError,
            NoFreeSlotError,
            DevToolsCallError,
            DevToolsTimeoutError,
            SandboxVanished,
        ) as error:
            log = await _read_log(session, f"{home}/{LOG_NAME}")
            raise SandboxStartError(f"the browser did not start: {error or 'no answer in time'}{log}") from error
        return browser, observation

    async def act(self, action: TabAction, budget: int) -> BrowserObservation:
        """Do something in the tab, wait until its page is ready, and return what that shows in ``budget`` characters.

        Raises BrowserActionError for an action that cannot be done, SandboxVanished, SandboxLost, SandboxDestroyed.
        """
        tab = self._tab
        try:
            note = await action(tab, self._outline)
        except DevToolsTimeoutError:
            note = await self._reopen("The page did not answer any more")
        except DevToolsCallError as error:
            if tab in self._tabs and not tab.state.has_crashed:
                raise BrowserActionError(f"the browser refused: {error}") from error
            note = ""
        return await self.observe(budget, note)

    async def observe(self, budget: int, note: str = "") -> BrowserObservation:
        """Wait until the page is ready and return what it shows, with ``note`` before it.  Raises as :meth:`act`."""
        notes = [note] if note else []
        view = await self._look(notes)
        tab = self._tab
        if tab.state.unreachable and not note:
            notes.append(f"The page did not answer: {tab.state.error or 'the connection failed'}")
        if view.url != self._url:
            self._url, self._part = view.url, 0
        self._outline = view.outline
        notes += [*self._take_notes(), *tab.state.take_notes()]
        text, self._part = format_view(view, notes, self._part, budget)
        return BrowserObservation(text, await tab.take_picture(PICTURE_BYTES))

    async def _look(self, notes: list[str]) -> PageView:
        """Return the page once it is ready; add to ``notes`` what happened on the way."""
        for _ in range(_LOOKS):
            try:
                notes += await self._settle()
                if (view := await self._tab.look()).url:
                    return view
            except DevToolsTimeoutError:
                notes.append(await self._reopen("The page did not answer any more"))
            except DevToolsCallError:  # the page changes to another one at this moment, or has crashed
                pass
            await asyncio.sleep(_PAUSE_S)
        raise SandboxVanished("no page of the browser answers")

    async def turn_page(self, by: int, budget: int) -> BrowserObservation:
        """Return the part of the same page that is ``by`` parts further.  Raises as :meth:`act`."""
        self._part += by
        return await self.observe(budget)

    async def read(self, part: int, budget: int) -> BrowserObservation:
        """Return a part of the page's text, counted from 0, in ``budget`` characters.  Raises as :meth:`act`."""
        room = max(budget - _READ_FOOT_CHARS, 1)
        try:
            text, length = await self._tab.read_text(part * room, (part + 1) * room)
        except DevToolsTimeoutError:
            return await self.observe(budget, await self._reopen("The page did not answer any more"))
        except DevToolsCallError as error:
            raise BrowserActionError(f"the page has no text to read: {error}") from error
        parts = max(-(-length // room), 1)
        if part >= parts:
            raise BrowserActionError(f"the page's text has no part {part + 1}: its last part is {parts}")
        return BrowserObservation(format_text_part(text, part, parts), await self._tab.take_picture(PICTURE_BYTES))

    # ---- start

    async def _start(self, session: SandboxSession, home: str) -> None:
        devtools = self._devtools
        process = await session.open_terminal(launch_command(home), cwd="/", on_output=devtools.feed)
        await devtools.begin(process, START_S)
        await devtools.call(
            msgspec.Raw, "Browser.setDownloadBehavior", "", START_S, behavior="deny", eventsEnabled=True
        )
        await devtools.call(
            msgspec.Raw,
            "Target.setAutoAttach",
            autoAttach=True,
            waitForDebuggerOnStart=True,
            flatten=True,
            filter=[{"type": "page"}, {"exclude": True}],
        )
        await devtools.wait_for(self._tabs_changed, START_S)

    async def _open_first(self, url: str, budget: int) -> BrowserObservation:
        tab = self._tab
        tab.load_s = START_S  # a busy machine is no fault of the page
        if url != BLANK and (error := await tab.go_to(url)):
            raise SandboxStartError(f"the task's page {url} does not answer: {error}")
        observation = await self.observe(budget)
        tab.load_s, status = LOAD_S, tab.state.status
        if refusal := next((line for line in self._outline.lines if line.startswith(_REFUSED)), ""):
            raise SandboxStartError(f"the task's page {url} is refused: {refusal.removeprefix('text ')}")
        if status >= 500:
            raise SandboxStartError(f"the task's page {url} answers with HTTP status {status}")
        return observation

    # ---- tabs

    @property
    def _tab(self) -> BrowserTab:
        if not self._tabs:
            raise DevToolsCallError("no tab is open")
        return self._tabs[-1]

    async def _settle(self) -> list[str]:
        """Wait until the tab that is then shown is ready; return what to tell about that."""
        while True:
            if not self._tabs:
                return [await self._reopen("The page closed its tab")]
            tab = self._tab
            loaded = await tab.settle()
            if tab.state.has_crashed:
                return [await self._reopen("The page crashed")]
            if self._tabs and tab is self._tab:
                break
        if loaded:
            return []
        await tab.stop_loading()
        return [f"The page was still loading after {tab.load_s:g} s, and was stopped."]

    async def _reopen(self, why: str) -> str:
        """Open the page that the agent saw last in a new tab instead of the present ones; return what to tell."""
        for old in self._tabs:
            self._devtools.send("Target.closeTarget", targetId=old.target)
        self._tabs.clear()
        self._tabs_changed.clear()
        await self._devtools.call(msgspec.Raw, "Target.createTarget", url=BLANK)
        await self._devtools.wait_for(self._tabs_changed, START_S)
        address, self._url = self._url, BLANK
        if address == BLANK or await self._tab.go_to(address) or not await self._tab.settle():
            await self._tab.go_to(BLANK)
            return f"{why}: a blank page is shown."
        return f"{why}: the last page was opened again."

    def _take_notes(self) -> list[str]:
        taken, self._notes = self._notes, []
        return taken

    # ---- events, from the session's reader

    def _on_event(self, event: DevToolsEvent) -> None:
        if event.session:
            if event.method == "Page.javascriptDialogOpening":
                filled = event.read(_Dialog).default_prompt
                self._devtools.send("Page.handleJavaScriptDialog", event.session, accept=True, promptText=filled)
            for tab in self._tabs:
                if tab.session == event.session:
                    tab.state.on_event(event)
            return
        match event.method:
            case "Target.attachedToTarget":
                self._add_tab(event.read(_Attached))
            case "Target.detachedFromTarget":
                self._remove_tab(event.read(_Detached).session_id)
            case "Browser.downloadWillBegin":
                download = event.read(_Download)
                self._notes.append(f"The download of {quote(download.suggested_filename or download.url)} was refused.")
            case _:
                pass

    def _add_tab(self, attached: _Attached) -> None:
        tab = BrowserTab(self._devtools, attached.target_info.target_id, attached.session_id)
        if self._tabs:
            self._notes.append("The page opened a new tab, which is shown.")
            self._devtools.send("Target.activateTarget", targetId=tab.target)
            self._tab.state.changed.set()
        self._tabs.append(tab)
        tab.prepare()
        self._tabs_changed.set()

    def _remove_tab(self, session: str) -> None:
        for tab in self._tabs:
            if tab.session == session:
                self._tabs.remove(tab)
                tab.state.changed.set()
                if self._tabs:
                    self._notes.append("A tab was closed; the one before it is shown.")
                return


async def _read_log(session: SandboxSession, path: str) -> str:
    """Return the end of Chromium's log in brackets, if there is one."""
    try:
        text = (await session.read_file(path)).decode(errors="replace").strip()
    except OSError:
        return ""
    return f" ({text[-_LOG_CHARS:]})" if text else ""
