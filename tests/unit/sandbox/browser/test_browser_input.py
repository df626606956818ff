"""If these fail, an agent opens what is no page of the web, or presses another key than it named."""

from __future__ import annotations

import shlex

import pytest

from sandbox.browser.addresses import explain_error, read_address
from sandbox.browser.errors import BrowserActionError
from sandbox.browser.keyboard import key_event
from sandbox.browser.launch_command import launch_command


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://shop/a?b=c#d", "http://shop/a?b=c#d"),
        (" https://x.org ", "https://x.org"),
        ("HTTP://x", "HTTP://x"),
        ("shop", "http://shop"),
        ("shop:8000/a", "http://shop:8000/a"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("shop.example:80/x", "http://shop.example:80/x"),
        ("about:blank", "about:blank"),
    ],
)
def test_an_address_is_of_the_web(given: str, address: str) -> None:
    assert read_address(given) == address


@pytest.mark.parametrize(
    "given",
    [
        *("file:///etc/passwd", "chrome://version", "devtools://x", "view-source:http://x", "javascript:alert(1)"),
        *("data:text/html,x", "about:config", "ftp://x", "http://", "http:///x", "", "http://[x", "a b", "FILE:/x"),
    ],
)
def test_any_other_address_is_refused(given: str) -> None:
    with pytest.raises(BrowserActionError):
        read_address(given)


@pytest.mark.parametrize(
    ("key", "event"),
    [
        ("Enter", {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}),
        ("arrowdown", {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40}),
        ("Left", {"key": "ArrowLeft", "code": "ArrowLeft", "windowsVirtualKeyCode": 37}),
        (" ", {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32, "text": " "}),
        ("F12", {"key": "F12", "code": "F12", "windowsVirtualKeyCode": 123}),
        ("é", {"key": "é", "text": "é"}),
    ],
)
def test_a_key_has_its_name_its_number_and_its_text(key: str, event: dict[str, object]) -> None:
    assert key_event(key) == event


def test_a_key_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(BrowserActionError, match="Enter, Escape, Tab"):
        key_event("Ctrl+A")


def test_chromium_has_no_port_and_asks_nobody() -> None:
    words = shlex.split(launch_command("/tmp/browser-1")[-1])
    assert "--remote-debugging-pipe" in words
    assert not any(word.startswith("--remote-debugging-port") for word in words)
    assert {"--disable-background-networking", "--disable-component-update", "--no-pings"} <= {*words}


def test_what_the_proxy_refuses_is_named_beside_chromiums_word() -> None:
    assert explain_error("net::ERR_TUNNEL_CONNECTION_FAILED").startswith("the proxy does not allow this host, or ")
    assert explain_error("net::ERR_CONNECTION_REFUSED") == "net::ERR_CONNECTION_REFUSED"
