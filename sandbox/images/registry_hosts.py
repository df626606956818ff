"""Refuses registries that lead to this machine, its neighbours or a cloud's metadata, unless the operator named them.

The engine asks a registry from its own network, so whoever names an image sends it there.  The name is judged, and the
addresses that it has here.  A name without an address here is left to the engine, which may have a resolver or a proxy
of its own, unless it is one of those that are never public; so is one in 198.18.0.0/15, where proxies that resolve
names themselves put all of them.  What is no image's name by Docker's grammar is refused: Podman reads ``docker://HOST``,
``dir:/PATH`` and others of its kind as places of images.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, NamedTuple, TypeAlias

from pydantic import AfterValidator

from sandbox.errors import ImageError
from sandbox.images.image_names import is_reference
from sandbox.images.registry_credentials import DOCKER_HUB, registry_of
from sandbox.ip_addresses import AddressKind, IpAddress, classify_address, parse_ip_address
from sandbox.tasks.allowed_hosts import classify_host, split_authority

ResolveName: TypeAlias = Callable[[str], Awaitable[Sequence[IpAddress]]]
"""Returns the addresses of a host's name; none if it cannot be resolved."""


def _check_registry(entry: str) -> str:
    if "/" in entry or split_authority(entry.removeprefix("*."), 0) is None:
        raise ValueError(f"'{entry}' is not a registry: write registry.corp, registry.corp:5000 or *.corp")
    return entry


RegistryEntry: TypeAlias = Annotated[str, AfterValidator(_check_registry)]
"""An entry of an operator's list: ``host`` with any port, ``host:port``, or ``*.domain``."""
_RESOLVE_S = 10.0
_OF_IPV6 = re.compile(r"\A\[[^\]/]*\](:\d{1,5})?/")
_NEVER_PUBLIC = re.compile(r"[^.]+|.*\.(?:internal|local|localdomain|home\.arpa)")
"""Names that no public server has: those of one word, and below domains that are reserved for private networks."""
_OF_PROXIES = ip_network("198.18.0.0/15")
_LOOPBACK = ip_address("127.0.0.1")


class NamedRegistries(NamedTuple):
    """The registries that whoever runs the sandboxes has named."""

    hosts: Collection[str] = ()
    """As in :data:`RegistryEntry`."""
    networks: Collection[IPv4Network | IPv6Network] = ()
    """Private addresses in these are named too; others not, because every engine names loopback's."""


async def resolve_name(host: str) -> Sequence[IpAddress]:
    """Return the addresses that this machine finds for a host."""
    try:
        async with asyncio.timeout(_RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return ()
    addresses = (parse_ip_address(str(each[4][0])) for each in found)
    return tuple(address for address in addresses if address is not None)


@dataclass(slots=True)
class RegistryGuard:
    """Judges the registries of images.  Each that may be asked is looked up once."""

    named: Callable[[str], Awaitable[NamedRegistries]]
    """Returns what the operator has named; called for a registry that would be refused otherwise."""
    resolve: ResolveName = resolve_name
    _permitted: set[str] = field(default_factory=lambda: {DOCKER_HUB})

    async def check(self, image: str) -> None:
        """Raise ImageError if the registry of ``image`` is not a public host and the operator has not named it."""
        if "$" in image:
            raise ImageError(
                f"the image {image[:200]} is not pulled: only the engine knows what its variables become. Write the "
                "name without them, or with variables of ARG before the first FROM, without quotes and escapes within"
            )
        if not is_reference(_OF_IPV6.sub("registry/", image, count=1)):
            raise ImageError(f"{image[:200]!r} is not pulled: it is not an image's name, such as registry.org/name:tag")
        registry = registry_of(image)
        if registry in self._permitted:
            return
        if kind := await self._find_refused(registry):
            raise ImageError(
                f"the image {image[:200]} is not pulled: its registry {registry} leads to {kind}. Whoever runs the "
                f"sandboxes may allow it: sandbox.allow_registries or --allow-registry {registry}, `docker login "
                f"{registry}`, or insecure-registries of the engine"
            )
        self._permitted.add(registry)

    async def _find_refused(self, registry: str) -> str | None:
        """Return what the registry leads to if it may not be asked."""
        host, port = split_authority(registry.lower(), 443) or (registry.lower(), 443)
        host = host.rstrip(".")
        addresses = await self._addresses(host)
        refused = [(each, kind) for each in addresses if (kind := classify_address(each)) is not AddressKind.PUBLIC]
        is_private_name = not addresses and _NEVER_PUBLIC.fullmatch(host) is not None
        if not refused and not is_private_name:
            return None
        named = await self.named(registry)
        if any(_names(entry.lower(), host, port) for entry in named.hosts):
            return None
        if is_private_name:
            return "no public host by its name"
        for address, kind in refused:
            if kind is not AddressKind.PRIVATE or not any(address in network for network in named.networks):
                return kind
        return None

    async def _addresses(self, host: str) -> Sequence[IpAddress]:
        if address := parse_ip_address(host):
            return (address,)
        if classify_host(host) is AddressKind.LOOPBACK:
            return (_LOOPBACK,)
        return tuple(address for address in await self.resolve(host) if address not in _OF_PROXIES)


def _names(entry: str, host: str, port: int) -> bool:
    """Return whether an operator's entry names a host at a port."""
    name, its_port = split_authority(entry, 0) or ("", 0)
    matches = host.endswith(name[1:]) if name.startswith("*.") else host == name
    return matches and its_port in {0, port}
