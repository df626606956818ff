"""Controls access to longshore's servers.

Everyone who can reach the port can run programs on this machine's Docker daemon. Beyond loopback, the server needs a
bearer token or an explicit ``--no-auth``. On a loopback address no token is needed: without one, the server
serves its own account and root, and answers to no other host name, so that no web page can reach it through a host name
of its own.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.cli.arguments import CommandArguments, Flag, option
from protocol.errors import UserError
from protocol.processes.loopback import is_loopback
from sandbox.http.messages import HttpError
from sandbox.http.peer_account import find_peer_account

TOKEN_VARIABLE = "LONGSHORE_SANDBOX_TOKEN"  # noqa: S105  a variable's name
_OPEN_PATHS = frozenset({"/healthz"})
"""Paths that need no token, for load balancers; they reveal nothing."""
_MIN_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Access:
    """The address that a server listens on, and its token; empty for none."""

    host: str
    token: str = ""
    any_account: bool = False
    """True if every account of this machine is served without a token."""

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)

    def middleware(self) -> list[Middleware]:
        """Return the middleware that enforces the access rules."""
        if self.token:
            return [Middleware(BearerToken, token=self.token)]
        if not self.loopback:
            return []
        names = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", self.host])
        return [names] if self.any_account else [names, Middleware(OwnAccount)]


class AccessOptions(CommandArguments):
    """Options of a server's address and access control."""

    host: Annotated[str, option("HOST")] = "127.0.0.1"
    """Address to listen on; beyond loopback, and for other accounts of this machine, a token or --no-auth is needed."""
    token_file: Annotated[Path | None, option("FILE")] = None
    """File with the bearer token; default: the variable LONGSHORE_SANDBOX_TOKEN."""
    no_auth: Flag = False
    """No authentication: everyone who reaches the port can run programs on the machines that it serves."""

    def access(self) -> Access:
        """Return the checked access rules. Raises UserError."""
        return check_access(self.host, read_token(self.token_file, os.environ), no_auth=self.no_auth)


def check_access(host: str, token: str, *, no_auth: bool) -> Access:
    """Check the options of a server. Raises UserError if it would be open to a network."""
    if token and no_auth:
        raise UserError("a token and --no-auth contradict each other: remove one of them")
    if token and len(token) < _MIN_TOKEN:
        raise UserError(
            f"the token has fewer than {_MIN_TOKEN} characters: `openssl rand -hex 32` generates a good one"
        )
    if not token and not no_auth and not is_loopback(host):
        raise UserError(
            f"{host} can be reached from other machines, and everyone who reaches it can run programs here: set "
            f"{TOKEN_VARIABLE} or --token-file, pass --no-auth, or listen on --host 127.0.0.1"
        )
    return Access(host, token, any_account=no_auth)


def read_token(file: Path | None, environment: Mapping[str, str]) -> str:
    """Read the token from a file, else from the environment; empty for none. Raises UserError."""
    if file is None:
        return environment.get(TOKEN_VARIABLE, "").strip()
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--token-file {file} cannot be read: {error}") from error
    if not token:
        raise UserError(f"--token-file {file} is empty: `openssl rand -hex 32 > {file}` generates a good one")
    return token


class BearerToken:
    """Middleware that refuses every request without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._expected):
                error = HttpError(401, "UNAUTHORIZED", "the request has no bearer token, or a wrong one")
                await _refuse(send, error, (b"www-authenticate", b"Bearer"))
                return
        await self._app(scope, receive, send)


class OwnAccount:
    """Middleware that refuses every request of another account than the server's own and root."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._served = app, frozenset((0, os.geteuid()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            account = find_peer_account(scope["client"], scope["server"])
            if account not in self._served:
                whose = "an unknown account" if account is None else f"account {account}"
                why = f"the request is {whose}'s, and without a token this server serves its own account and root"
                await _refuse(send, HttpError(403, "FORBIDDEN", f"{why}: set {TOKEN_VARIABLE} at both, or --no-auth"))
                return
        await self._app(scope, receive, send)


async def _refuse(send: Send, error: HttpError, *headers: tuple[bytes, bytes]) -> None:
    reply = error.reply()
    headers = ((b"content-type", b"application/json"), *headers)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
