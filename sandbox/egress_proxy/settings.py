"""Settings of the egress proxy: hosts that every task may reach, package indexes, and the size of the cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from protocol.settings import ConfigSection
from sandbox.docker.network.proxy_address import PROXY_HOST, PROXY_PORT
from sandbox.egress_proxy.index_links import proxied_path
from sandbox.ip_addresses import AddressKind, classify_network
from sandbox.tasks.allowed_hosts import NOT_A_HOST, parse_allowed_host

PROXY_ADDRESS = f"http://{PROXY_HOST}:{PROXY_PORT}"
LOCAL_HOSTS = ("localhost", PROXY_HOST, "0.0.0.0", "::1", "[::1]")  # noqa: S104  nothing listens there
"""How programs in a sandbox name the sandbox itself."""
CacheSize = Annotated[float, Field(gt=0)]
"""GiB."""


def is_proxy_variable(name: str) -> bool:
    """Return whether a variable of this name tells programs which proxy to use, or for which hosts none."""
    return name.lower() in {"http_proxy", "https_proxy", "no_proxy"}


class EgressProxySettings(ConfigSection):
    """Hosts that sandboxes in network mode ``proxy`` may reach, and the size of the proxy's cache."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts that every task in network mode ``proxy`` or ``full`` may reach in addition to its own list:
    ``example.org``, ``*.example.org``, ``192.0.2.0/24``. A host or range named here (without ``*.``) may have private
    addresses; one of this machine is reached only if named as an address with its port, and not as 127.0.0.1, which
    programs in a sandbox take for the sandbox itself."""
    python_index: str = ""
    """Package index for pip and uv in network mode ``proxy``; each file is fetched once for all sandboxes of a
    machine."""
    npm_index: str = ""
    """Package index for npm in network mode ``proxy``."""
    proxy_gb: CacheSize = 20.0
    """Maximum size in GiB of the files that the proxy caches on a machine; a file larger than half of it is not
    cached."""

    @model_validator(mode="after")
    def _has_valid_hosts_and_indexes(self) -> Self:
        for host in self.allow_hosts:
            allowed = parse_allowed_host(host)
            if allowed is None:
                raise ValueError(f"'{host}' {NOT_A_HOST}")
            if isinstance(allowed.host, str):
                continue
            if (kind := classify_network(allowed.host)) not in {AddressKind.PUBLIC, AddressKind.PRIVATE}:
                raise ValueError(f"'{host}' allows nothing: it is {kind}, each of which has to be named by itself")
        for index in self._indexes:
            if urlsplit(index).scheme not in {"http", "https"}:
                raise ValueError(f"'{index}' is not a package index: write its URL, for example https://host/simple")
        return self

    @property
    def _indexes(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.python_index, self.npm_index)))

    @property
    def max_bytes(self) -> int:
        """Size of the cache in bytes."""
        return int(self.proxy_gb * (1 << 30))

    @property
    def always_allowed_hosts(self) -> tuple[str, ...]:
        """Hosts that every task may reach, those of the package indexes included."""
        return (*self.allow_hosts, *(urlsplit(index).netloc for index in self._indexes))

    def environment(self, service_names: Iterable[str] = ()) -> dict[str, str]:
        """Build the variables that point programs at the proxy; ``service_names`` are reached without it."""
        env: dict[str, str] = {}
        for lower in ("http_proxy", "https_proxy"):
            env[lower] = env[lower.upper()] = PROXY_ADDRESS
        env["no_proxy"] = env["NO_PROXY"] = ",".join((*LOCAL_HOSTS, *service_names))
        if self.python_index:
            index = proxied_path(PROXY_ADDRESS, self.python_index)
            env |= {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
        if self.npm_index:
            env["npm_config_registry"] = proxied_path(PROXY_ADDRESS, self.npm_index)
        return env
