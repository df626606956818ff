"""If these fail, an agent acts on a page that is not there yet, or is not told what happened by itself."""

from __future__ import annotations

import json

import msgspec

from sandbox.browser.devtools import DevToolsEvent
from sandbox.browser.tab_state import TabState


def tell(state: TabState, method: str, **params: object) -> None:
    state.on_event(DevToolsEvent(method, msgspec.Raw(json.dumps(params).encode()), "S"))


def test_a_page_is_quiet_when_it_has_loaded_and_waits_for_nothing() -> None:
    state = TabState("main")
    tell(state, "Page.frameStartedLoading", frameId="main")
    assert not state.is_quiet
    tell(state, "Page.frameStartedLoading", frameId="inner")
    tell(state, "Network.requestWillBeSent", requestId="1", type="Fetch", frameId="main")
    tell(state, "Page.frameStoppedLoading", frameId="main")
    assert not state.is_quiet
    tell(state, "Network.loadingFinished", requestId="1")
    assert state.is_quiet
    tell(state, "Network.requestWillBeSent", requestId="2", type="EventSource", frameId="main")
    assert state.is_quiet, "a stream of events is waited for"


def test_a_new_page_forgets_the_requests_of_the_old_one_and_has_its_own_status() -> None:
    state = TabState("main")
    tell(state, "Network.requestWillBeSent", requestId="1", type="Fetch", frameId="main")
    tell(state, "Network.requestWillBeSent", requestId="2", type="Document", frameId="main")
    tell(state, "Network.responseReceived", requestId="3", type="Document", frameId="inner", response={"status": 500})
    tell(state, "Network.responseReceived", requestId="2", type="Document", frameId="main", response={"status": 404})
    tell(state, "Page.frameNavigated", frame={"id": "next", "url": "http://x/"})
    assert (state.is_quiet, state.status, state.main_frame, state.unreachable) == (True, 404, "next", "")


def test_a_page_that_does_not_answer_says_why() -> None:
    state = TabState("main")
    tell(state, "Network.requestWillBeSent", requestId="1", type="Document", frameId="main")
    tell(state, "Network.loadingFailed", requestId="1", type="Document", errorText="net::ERR_CONNECTION_REFUSED")
    tell(state, "Page.frameNavigated", frame={"id": "main", "url": "chrome-error://x", "unreachableUrl": "http://x/"})
    assert (state.unreachable, state.error) == ("http://x/", "net::ERR_CONNECTION_REFUSED")


def test_dialogs_and_crashes_are_told_once_and_unknown_events_are_nothing() -> None:
    state = TabState("main")
    tell(state, "Page.javascriptDialogOpening", type="alert", message='a "b"\n')
    tell(state, "Inspector.targetCrashed")
    tell(state, "Page.unheardOf", frame=3)
    assert state.has_crashed
    assert state.take_notes() == ['The page showed an alert dialog that said "a \\"b\\"\\n": it was accepted.']
    assert state.take_notes() == []
