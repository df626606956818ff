"""Controls access: only clients with the token, by header or cookie; without a token everybody on loopback.

Every response has the same strict security headers.
"""

from __future__ import annotations

import hmac
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from launch.monitor.web.responses import error_response
from protocol.processes.loopback import is_loopback

COOKIE = "longshore_monitor"
TOKEN_VARIABLE = "LONGSHORE_MONITOR_TOKEN"  # noqa: S105  the variable's name
_SCHEME = "bearer "
_REFUSAL_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Token needed · longshore</title></head>
<body><h1>This monitor needs a token</h1><p>{line}</p></body></html>
"""
"""Page for clients without a token, without style, as they get no file."""
_HEADERS = {
    # asciinema-player needs WebAssembly; 'wasm-unsafe-eval' does not allow text to be run.
    "content-security-policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class SecurityHeadersMiddleware:
    """Adds the security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class LoopbackOnlyMiddleware:
    """Refuses requests for other host names than loopback's, as protection against DNS rebinding."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_loopback(_host(Headers(scope=scope).get("host", ""))):
            await self._app(scope, receive, send)
        else:
            await error_response(400, "this monitor only answers for 127.0.0.1 and localhost")(scope, receive, send)


def _host(header: str) -> str:
    """Return a host name without its port; empty if it is invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class TokenMiddleware:
    """Refuses clients without the token.  ``/?token=…`` with the right token sets the cookie and redirects."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._has_token(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        given = QueryParams(scope["query_string"]).get("token", "")
        if given and self._is_right(given):
            answer = RedirectResponse("/" + scope["path"].lstrip("/"), 303)  # //HOST would be another site
            answer.set_cookie(COOKIE, given, httponly=True, samesite="strict")
        else:
            line = (
                f"{'the token is wrong' if given else 'this monitor needs a token'}: open the address that it "
                "printed at its start, or send the token as Authorization: Bearer"
            )
            is_api = scope["path"].startswith("/api/")
            answer = error_response(401, line) if is_api else HTMLResponse(_REFUSAL_PAGE.format(line=escape(line)), 401)
            answer.headers["www-authenticate"] = "Bearer"
        await answer(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        if given.lower().startswith(_SCHEME) and self._is_right(given[len(_SCHEME) :].strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return COOKIE in cookies and self._is_right(cookies[COOKIE].value)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
