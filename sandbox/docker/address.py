"""The address of a Docker engine as one string, and every way to connect to it.

The forms are ``unix:///path`` (Docker's socket or Podman's), ``tcp://host:port``, and ``tcp://host:port?certs=/folder``
for an engine with TLS: the folder holds ca.pem, cert.pem and key.pem, as for Docker's own client. One string can be
recorded, compared and handed to other processes.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import aiodocker
import aiohttp

from protocol.errors import UserError

P = TypeVar("P", bound=asyncio.Protocol)

_PORT, _TLS_PORT = 2375, 2376
_FORMS = "use unix:///path, tcp://host:port, or tcp://host:port?certs=/folder for TLS"


@dataclass(frozen=True, slots=True)
class DockerAddress:
    """A parsed address; :meth:`parse` makes it and ``str`` turns it back into its string."""

    socket: str = ""
    """Path of a Unix socket; empty for TCP."""
    host: str = ""
    port: int = 0
    certs: str = ""
    """Folder of ca.pem, cert.pem and key.pem; empty for plain TCP."""

    @classmethod
    def parse(cls, url: str) -> DockerAddress:
        """Parse an address. Raises UserError for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UserError(f"{url!r} is not the address of a Docker engine ({error}): {_FORMS}") from error
        query = parse_qs(parts.query, keep_blank_values=True)
        if parts.scheme == "unix" and parts.path and not parts.netloc and not query:
            return cls(socket=parts.path)
        if parts.scheme in ("tcp", "http") and parts.hostname and not query.keys() - {"certs"}:
            certs = query.get("certs", [""])[-1]
            return cls(host=parts.hostname, port=port or (_TLS_PORT if certs else _PORT), certs=certs)
        raise UserError(f"{url!r} is not the address of a Docker engine: {_FORMS}")

    @property
    def authority(self) -> str:
        """The value of the HTTP ``Host`` header."""
        if self.socket:
            return "docker"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.socket:
            return f"unix://{self.socket}"
        return f"tcp://{self.authority}" + (f"?certs={quote(self.certs)}" if self.certs else "")

    def tls(self) -> ssl.SSLContext | None:
        """The context for mutual TLS; None for plain connections. Raises UserError when a certificate is missing."""
        return _tls(self.certs) if self.certs else None

    def client(self, timeout_s: float) -> aiodocker.Docker:
        """Make an aiodocker client without a limit on connections.

        With the library's default of 100, every call would hang once 100 attach streams are open.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        if self.socket:
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(self.socket, limit=0)
            return aiodocker.Docker("unix://localhost", connector=connector, timeout=timeout)
        tls = self.tls()
        connector = aiohttp.TCPConnector(limit=0, ssl=tls or False)
        base = f"{'https' if tls else 'http'}://{self.authority}"
        return aiodocker.Docker(base, connector=connector, timeout=timeout)

    async def connect(self, protocol: Callable[[], P]) -> P:
        """Open a raw connection for a stream that is hijacked from HTTP. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.socket:
            return (await loop.create_unix_connection(protocol, self.socket))[1]
        return (await loop.create_connection(protocol, self.host, self.port, ssl=self.tls()))[1]

    def http_connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Make a blocking connection for set-up and preflight checks."""
        if self.socket:
            return UnixHttpConnection(self.socket, timeout_s)
        tls = self.tls()
        if tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


class UnixHttpConnection(http.client.HTTPConnection):
    """A blocking HTTP connection over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self.socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


def docker_address_from_environment(env: Mapping[str, str]) -> str:
    """Return the address from DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH; empty when they name none."""
    url = env.get("DOCKER_HOST", "")
    if not url or not env.get("DOCKER_TLS_VERIFY") or not url.startswith("tcp://") or "?" in url:
        return url
    certs = Path(env.get("DOCKER_CERT_PATH") or Path.home() / ".docker").absolute()
    return f"{url.rstrip('/')}?certs={quote(str(certs))}"


@functools.cache
def _tls(certs: str) -> ssl.SSLContext:
    folder = Path(certs)
    try:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"cannot use TLS with the Docker engine and the certificates in {folder} ({error}): put ca.pem, cert.pem "
            "and key.pem there, or name another folder in DOCKER_CERT_PATH"
        ) from error
    return context
