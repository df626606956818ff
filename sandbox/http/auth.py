"""Controls access to longshore's servers.

On a loopback address no token is needed. Beyond it, the server needs a bearer token or an explicit ``--no-auth``,
because everyone who can reach the port can run programs on this machine's Docker daemon. Without a token, a loopback
server answers to no other host name, so that no web page can reach it through a host name of its own.
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

TOKEN_VARIABLE = "LONGSHORE_SANDBOX_TOKEN"  # noqa: S105  a variable's name
_OPEN_PATHS = frozenset({"/healthz"})
"""Paths that need no token, for load balancers; they reveal nothing."""
_MIN_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Access:
    """The address that a server listens on, and its token; empty for none."""

    host: str
    token: str = ""

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)

    def middleware(self) -> list[Middleware]:
        """Return the middleware that enforces the access rules."""
        if self.token:
            return [Middleware(BearerToken, token=self.token)]
        if self.loopback:
            return [Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", self.host])]
        return []


class AccessOptions(CommandArguments):
    """Options of a server's address and access control."""

    host: Annotated[str, option("HOST")] = "127.0.0.1"
    """Address to listen on; beyond loopback a token or --no-auth is required."""
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
    return Access(host, token)


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
                reply = HttpError(401, "UNAUTHORIZED", "the request has no bearer token, or a wrong one").reply()
                headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": reply.status, "headers": headers})
                await send({"type": "http.response.body", "body": reply.body})
                return
        await self._app(scope, receive, send)
