"""What the gate is told: whom everyone may reach, which package indexes to use, how much to keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from protocol.errors import UserError
from sandbox.docker.network_namespace import PROXY_HOST, PROXY_PORT
from sandbox.egress_proxy.index_links import proxied_path
from sandbox.egress_proxy.rules import NOT_A_HOST, split_authority

PROXY_ADDRESS = f"http://{PROXY_HOST}:{PROXY_PORT}"


@dataclass(frozen=True, slots=True)
class EgressProxySettings:
    """Raises UserError for what is no host or no index."""

    max_bytes: int = 20 << 30
    """Most that fetched files may take up; what is larger than half of it is not kept."""
    always_allowed: tuple[str, ...] = ()
    """Hosts that every task in mode ``proxy`` may reach beside its own list and the package indexes."""
    python_index: str = ""
    """Address of a package index (``https://host/simple``) that pip and uv are pointed at through the gate."""
    npm_index: str = ""

    def __post_init__(self) -> None:
        for host in self.always_allowed:
            if split_authority(host.removeprefix("*."), 0) is None:
                raise UserError(f"'{host}' {NOT_A_HOST}")
        for index in self._indexes:
            if urlsplit(index).scheme not in {"http", "https"}:
                raise UserError(f"'{index}' is no package index: write its address, https://host/simple for example")

    @property
    def _indexes(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.python_index, self.npm_index)))

    @property
    def always_allowed_hosts(self) -> tuple[str, ...]:
        return (*self.always_allowed, *(urlsplit(index).netloc for index in self._indexes))

    def environment(self, service_names: Iterable[str] = ()) -> dict[str, str]:
        """For programs behind the open gate; ``beside`` are the hosts of their own network."""
        env: dict[str, str] = {}
        for lower in ("http_proxy", "https_proxy"):
            env[lower] = env[lower.upper()] = PROXY_ADDRESS
        env["no_proxy"] = env["NO_PROXY"] = ",".join(("localhost", PROXY_HOST, *service_names))
        if self.python_index:
            index = proxied_path(PROXY_ADDRESS, self.python_index)
            env |= {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
        if self.npm_index:
            env["npm_config_registry"] = proxied_path(PROXY_ADDRESS, self.npm_index)
        return env
