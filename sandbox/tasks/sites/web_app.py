"""The base of a site: routes, forms, sessions, log-in, and the query of its state.  Standard library only.

``POST /-/state`` with the site's secret answers one SQL statement that only reads; without the secret there is no such
page.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import sqlite3
import string
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from sandbox.tasks.sites.html_elements import Html, document, element, form, hidden_field, link, text_field

STATE_PATH = "/-/state"
PORT = 8000
_MAX_BODY = 1 << 20
_COOKIE = "session"
_JSON, _HTML = "application/json", "text/html; charset=utf-8"


class SiteError(Exception):
    """A request that is answered with an error page."""

    def __init__(self, status: HTTPStatus, text: str = "") -> None:
        super().__init__(text or status.phrase)
        self.status = status


@dataclass(slots=True)
class Session:
    """The state that the site keeps for one browser."""

    user: str = ""
    values: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class SiteRequest:
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    session: Session
    session_id: str

    def number(self, name: str, default: int = 1) -> int:
        """Return a whole number above 0 of the query or the form.  Raises SiteError."""
        text = self.form.get(name) or self.query.get(name) or str(default)
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text)):
            raise SiteError(HTTPStatus.BAD_REQUEST, f"{name} must be a number above 0")
        return int(text)


class SiteResponse(NamedTuple):
    body: str
    status: HTTPStatus = HTTPStatus.OK
    media_type: str = _HTML
    location: str = ""


Handler = Callable[..., SiteResponse]
"""Takes the request and the groups of its route's pattern."""


class Route(NamedTuple):
    method: str
    pattern: str
    handler: Handler


class Rows(NamedTuple):
    """One page of a list."""

    rows: list[sqlite3.Row]
    page: int
    pages: int
    total: int


class WebApp:
    """A site.  Requests are answered one at a time, so that each sees a consistent state."""

    title: ClassVar[str]

    def __init__(self, schema: str, secret: str) -> None:
        # a database of its own in memory, which is shared by the two connections
        name = f"file:site-{secrets.token_hex(8)}?mode=memory&cache=shared"
        self.database = sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None)
        self.database.row_factory = sqlite3.Row
        self.database.executescript(schema)
        self._reader = sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None)
        self._reader.execute("PRAGMA query_only = 1")
        self._secret, self._lock, self._sessions = secret, threading.Lock(), dict[str, Session]()
        self._routes = [*self.routes(), *self._log_in_routes()]

    def routes(self) -> Sequence[Route]:
        """Return the site's own routes."""
        raise NotImplementedError

    def header(self, request: SiteRequest) -> Sequence[str]:
        """Return the content of the pages' header."""
        raise NotImplementedError

    # -- what sites use

    def all(self, sql: str, *values: object) -> list[sqlite3.Row]:
        return self.database.execute(sql, values).fetchall()

    def one(self, sql: str, *values: object) -> sqlite3.Row:
        """Return the only row.  Raises SiteError if there is none."""
        found = self.database.execute(sql, values).fetchone()
        if found is None:
            raise SiteError(HTTPStatus.NOT_FOUND)
        return found

    def paged(self, request: SiteRequest, size: int, sql: str, *values: object) -> Rows:
        """Return the page of a query's rows that the request names."""
        found, page = self.all(sql, *values), request.number("page")
        pages = max(1, -(-len(found) // size))
        return Rows(found[(page - 1) * size : page * size], page, pages, len(found))

    def page(self, request: SiteRequest, title: str, *content: str, status: HTTPStatus = HTTPStatus.OK) -> SiteResponse:
        notice = request.session.values.pop("notice", "")
        shown = [element("p", notice, class_="notice", role="status")] if notice else []
        return SiteResponse(
            document(self.title, title, self.header(request), *shown, element("h1", title), *content), status
        )

    def redirect(self, request: SiteRequest, path: str, notice: str = "") -> SiteResponse:
        """Go to another page, which shows the notice."""
        if notice:
            request.session.values["notice"] = notice
        return SiteResponse("", HTTPStatus.SEE_OTHER, location=path)

    def require_user(self, request: SiteRequest) -> str:
        """Return the user's name.  Raises SiteError without a log-in."""
        if not request.session.user:
            raise SiteError(HTTPStatus.UNAUTHORIZED, "log in first")
        return request.session.user

    def account_links(self, request: SiteRequest) -> Html:
        if not request.session.user:
            return link("Log in", "/login")
        return element("span", f"Logged in as {request.session.user} ", link("Log out", "/logout"))

    # -- log-in

    def _log_in_routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/login", self._log_in_page),
            Route("POST", "/login", self._log_in),
            Route("GET", "/logout", self._log_out),
        )

    def _log_in_page(self, request: SiteRequest, wrong: str = "") -> SiteResponse:
        fields = (
            hidden_field("next", request.query.get("next") or request.form.get("next", "/")),
            text_field("User name", "user", request.form.get("user", "")),
            text_field("Password", "password", kind="password"),
        )
        told = [element("p", wrong, class_="notice error", role="alert")] if wrong else []
        return self.page(request, "Log in", *told, form("/login", *fields, button="Log in"))

    def _log_in(self, request: SiteRequest) -> SiteResponse:
        given = request.form.get("user", "").strip(), request.form.get("password", "")
        if not self.all("SELECT 1 FROM users WHERE name = ? AND password = ?", *given):
            return self._log_in_page(request, "The user name or the password is wrong.")
        request.session.user = given[0]
        after = request.form.get("next", "/")
        return self.redirect(request, after if re.fullmatch(r"/(?!/)[^\\\s]*", after) else "/", f"Welcome, {given[0]}.")

    def _log_out(self, request: SiteRequest) -> SiteResponse:
        request.session.user = ""
        return self.redirect(request, "/", "You are logged out.")

    # -- answering

    def answer(self, method: str, target: str, body: str, session_id: str) -> SiteResponse:
        """Answer a request of a session."""
        try:
            split = urlsplit(target)
        except ValueError:
            return SiteResponse("", HTTPStatus.BAD_REQUEST)
        with self._lock:
            request = SiteRequest(
                split.path,
                dict(parse_qsl(split.query, keep_blank_values=True)),
                dict(parse_qsl(body, keep_blank_values=True)),
                self._sessions.setdefault(session_id, Session()),
                session_id,
            )
            try:
                return self._routed(method, request)
            except SiteError as error:
                return self._error_page(request, error)

    def _routed(self, method: str, request: SiteRequest) -> SiteResponse:
        for route in self._routes:
            if (found := re.fullmatch(route.pattern, request.path)) and route.method == method:
                return route.handler(request, *found.groups())
        raise SiteError(HTTPStatus.NOT_FOUND)

    def _error_page(self, request: SiteRequest, error: SiteError) -> SiteResponse:
        if request.path.startswith("/api/"):
            return json_response({"error": str(error)}, error.status)
        if error.status is HTTPStatus.UNAUTHORIZED:
            return self.redirect(request, f"/login?next={request.path}", "Log in first.")
        return self.page(request, error.status.phrase, element("p", str(error)), status=error.status)

    def answer_state(self, secret: str, body: str) -> SiteResponse:
        """Answer a query of the state, ``{"sql"}``, with ``{"rows"}``."""
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            return SiteResponse("", HTTPStatus.NOT_FOUND)
        with self._lock:
            try:
                return json_response({"rows": self._reader.execute(json.loads(body)["sql"]).fetchall()})
            except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
                return json_response({"error": str(error)}, HTTPStatus.BAD_REQUEST)


def json_response(value: object, status: HTTPStatus = HTTPStatus.OK) -> SiteResponse:
    return SiteResponse(json.dumps(value, indent=2), status, _JSON)


def serve_app(app: WebApp, address: tuple[str, int] = ("", PORT)) -> ThreadingHTTPServer:
    """Return a server of the site that only has to run."""

    class RequestHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if not re.fullmatch("[0-9]{1,7}", length) or int(length) > _MAX_BODY:
                self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return
            body = self.rfile.read(int(length)).decode(errors="replace")
            if self.command == "POST" and self.path == STATE_PATH:
                self._send(app.answer_state(self.headers.get("X-Secret", ""), body))
                return
            known = _session_in(self.headers.get("Cookie", ""))
            session_id = known or secrets.token_hex(16)
            self._send(app.answer(self.command, self.path, body, session_id), "" if known else session_id)

        def _send(self, response: SiteResponse, new_session: str = "") -> None:
            body = response.body.encode()
            self.send_response(response.status)
            self.send_header("Content-Type", response.media_type)
            self.send_header("Content-Length", str(len(body)))
            if response.location:
                self.send_header("Location", quote(response.location, safe=string.punctuation))
            if new_session:
                self.send_header("Set-Cookie", f"{_COOKIE}={new_session}; Path=/; HttpOnly; SameSite=Lax")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
            """Keep no log: nobody reads it."""

    return ThreadingHTTPServer(address, RequestHandler)


def _session_in(cookies: str) -> str:
    try:
        found = SimpleCookie(cookies).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None and re.fullmatch("[0-9a-f]{32}", found.value) else ""
