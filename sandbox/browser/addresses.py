"""Checks the addresses that an agent wants to open, and says why one did not answer.  Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from sandbox.browser.errors import BrowserActionError

BLANK = "about:blank"
_SCHEMES = {"http", "https"}
_NO_TUNNEL = "net::ERR_TUNNEL_CONNECTION_FAILED"


def read_address(given: str) -> str:
    """Return the address of a page, with ``http://`` if it has no scheme.

    Raises BrowserActionError for other schemes, such as ``file`` and ``chrome``, and for what is no address.
    """
    text = given.strip()
    if text == BLANK:
        return text
    scheme, separator, _ = text.partition(":")
    has_scheme = bool(separator) and scheme.replace("+", "").replace("-", "").isalpha() and "." not in scheme
    has_port = has_scheme and text[len(scheme) + 1 :].split("/")[0].isdigit()  # localhost:8000
    if not has_scheme or has_port:
        text, scheme = f"http://{text}", "http"
    if scheme.lower() not in _SCHEMES:
        raise BrowserActionError(f"addresses of the kind '{scheme}:' are not opened: give one with http or https")
    try:
        host = urlsplit(text).hostname
    except ValueError:
        host = None
    if not host or any(each.isspace() for each in text):
        raise BrowserActionError(f"{given!r} is not an address: give one such as http://example.org/page")
    return text


def explain_error(error: str) -> str:
    """Return Chromium's word for why a page did not answer, with what it means behind a sandbox's proxy."""
    if error != _NO_TUNNEL:
        return error
    return f"the proxy does not allow this host, or it cannot be reached ({error})"
