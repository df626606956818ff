"""Follows one tab by its events: whether it loads, what it asks for, and what an agent must be told."""

from __future__ import annotations

import asyncio

import msgspec

from sandbox.browser.accessibility import quote
from sandbox.browser.addresses import explain_error
from sandbox.browser.devtools import DevToolsEvent

_ENDLESS = {"EventSource", "WebSocket", "Ping", "Media", "Manifest", "Preflight", "Other"}
"""Kinds of requests for whose end a page need not wait."""
_MAX_REQUESTS = 1000
_EVENTS = {
    *("Page.frameStartedLoading", "Page.frameStoppedLoading", "Page.frameNavigated", "Page.javascriptDialogOpening"),
    *("Network.requestWillBeSent", "Network.responseReceived", "Network.loadingFinished", "Network.loadingFailed"),
    "Inspector.targetCrashed",
}


class _Frame(msgspec.Struct, rename="camel"):
    id: str = ""
    parent_id: str = ""
    url: str = ""
    unreachable_url: str = ""


class _Response(msgspec.Struct):
    status: int = 0


class _TabEvent(msgspec.Struct, rename="camel"):
    """The parameters that any of the events has."""

    frame: _Frame = msgspec.field(default_factory=_Frame)
    frame_id: str = ""
    request_id: str = ""
    type: str = ""
    error_text: str = ""
    canceled: bool = False
    response: _Response = msgspec.field(default_factory=_Response)
    message: str = ""
    default_prompt: str = ""


class TabState:
    """The state of a tab; :attr:`changed` is set by each event that concerns who waits for the page."""

    def __init__(self, main_frame: str) -> None:
        self.main_frame: str = main_frame
        self.changed = asyncio.Event()
        self.is_loading = self.has_crashed = False
        self.status = 0
        """HTTP status of the document; 0 if it has none."""
        self.unreachable = self.error = ""
        """Address that did not answer, if that is what the page shows, and Chromium's word for why."""
        self.notes: list[str] = []
        """Sentences about what happened by itself, for the agent."""
        self._requests: set[str] = set()

    @property
    def is_quiet(self) -> bool:
        """True if the page has loaded and waits for nothing."""
        return not self.is_loading and not self._requests

    def take_notes(self) -> list[str]:
        """Return the sentences since the last call."""
        taken, self.notes = self.notes, []
        return taken

    def on_event(self, event: DevToolsEvent) -> None:
        """Take an event of the tab's session."""
        if event.method in _EVENTS:
            self._take(event.method, event.read(_TabEvent))
            self.changed.set()

    def _take(self, method: str, event: _TabEvent) -> None:
        is_document = event.type == "Document" and event.frame_id == self.main_frame
        match method:
            case "Page.frameStartedLoading" | "Page.frameStoppedLoading" if event.frame_id == self.main_frame:
                self.is_loading = method == "Page.frameStartedLoading"
            case "Page.frameNavigated" if not event.frame.parent_id:
                self.main_frame, self.unreachable = event.frame.id, event.frame.unreachable_url
                self._requests.clear()
            case "Network.requestWillBeSent":
                self._begin_request(event, is_document=is_document)
            case "Network.responseReceived" if is_document:
                self.status = event.response.status
            case "Network.loadingFinished":
                self._requests.discard(event.request_id)
            case "Network.loadingFailed":
                self._requests.discard(event.request_id)
                if event.type == "Document" and not event.canceled:
                    self.error = explain_error(event.error_text)
            case "Page.javascriptDialogOpening":
                self._tell_dialog(event)
            case "Inspector.targetCrashed":
                self.has_crashed = True
            case _:
                pass

    def _begin_request(self, event: _TabEvent, *, is_document: bool) -> None:
        if is_document:
            self.status, self.error = 0, ""
        if event.type not in _ENDLESS and len(self._requests) < _MAX_REQUESTS:
            self._requests.add(event.request_id)

    def _tell_dialog(self, event: _TabEvent) -> None:
        kind = event.type or "dialog"
        said = f" that said {quote(event.message)}" if event.message else ""
        filled = f" with {quote(event.default_prompt)}" if kind == "prompt" else ""
        self.notes.append(
            f"The page showed {'an' if kind == 'alert' else 'a'} {kind} dialog{said}: it was accepted{filled}."
        )
