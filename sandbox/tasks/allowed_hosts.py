"""The hosts that a task asks for: their spelling, and which of them only the operator may allow. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple

from sandbox.ip_addresses import (
    AddressKind,
    IpAddress,
    IpNetwork,
    classify_address,
    classify_network,
    is_within,
    parse_ip_address,
    parse_ip_network,
)

NOT_A_HOST = "is not a host: write example.org, *.example.org, example.org:8080 or a range like 192.0.2.0/24"
_WEB_PORTS = frozenset({80, 443})
_NAME = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*", re.ASCII)


def split_authority(authority: str, default_port: int) -> tuple[str, int] | None:
    """Split ``host``, ``host:port`` or ``[v6]:port``; None for anything else."""
    host, bracket, rest = authority.partition("]")
    if authority.startswith("["):
        host, port = host[1:], rest.removeprefix(":") if bracket else "?"
    else:
        host, _, port = authority.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        return None
    return host, int(port or default_port)


class AllowedHost(NamedTuple):
    """An entry of an allow-list."""

    host: str | IpNetwork
    """A host's name or address, ``*.`` and a domain for its subdomains, or a range of addresses."""
    port: int
    """0: those of the web."""

    @property
    def ports(self) -> frozenset[int]:
        """The ports at which the entry allows its host."""
        return frozenset({self.port}) if self.port else _WEB_PORTS


def parse_allowed_host(entry: str) -> AllowedHost | None:
    """Parse an entry of an allow-list; None for what would allow nothing: a URL, or ``*`` in another place.

    IPv6 needs its brackets only before a port, since Harbor's tasks write it without.
    """
    is_bare_ipv6 = not entry.startswith("[") and entry.count(":") > 1
    parts = (entry, 0) if is_bare_ipv6 else split_authority(entry, 0)
    if parts is None or "%" in entry:
        return None
    name, port = parts[0].rstrip(".").lower(), parts[1]
    if (network := parse_ip_network(name)) is not None:
        return AllowedHost(network, port)
    domain = name.removeprefix("*.")
    is_host = name == domain if parse_ip_address(domain) is not None else _NAME.fullmatch(name)
    return AllowedHost(name, port) if is_host else None


def classify_host(host: str | IpNetwork) -> AddressKind:
    """Return the kind of address that a host's name says by itself, or that a whole range has; public for any name
    that has to be resolved."""
    if not isinstance(host, str):
        return classify_network(host)
    name = host.removeprefix("*.").rstrip(".").lower()
    if name.rpartition(".")[2] == "localhost":
        return AddressKind.LOOPBACK
    address = parse_ip_address(name)
    return classify_address(address) if address is not None else AddressKind.PUBLIC


def allowed_ports(entries: Sequence[str], host: str) -> frozenset[int]:
    """Return the ports at which the entries allow a host by its name, or an address by itself: those of the web, where
    an entry names none."""
    host = host.rstrip(".").lower()
    by_suffix = parse_ip_address(host) is None
    return frozenset[int]().union(
        *(each.ports for each in _parse(entries) if _names_host(each.host, host, by_suffix=by_suffix))
    )


def ports_by_range(entries: Sequence[str], addresses: IpAddress | IpNetwork) -> frozenset[int]:
    """Return the ports at which a range among the entries allows an address, or all of another range."""
    inner = ip_network(addresses)
    return frozenset[int]().union(
        *(each.ports for each in _parse(entries) if not isinstance(each.host, str) and is_within(inner, each.host))
    )


def ports_of_ranges(entries: Sequence[str]) -> frozenset[int]:
    """Return the ports at which the entries allow any range of addresses."""
    return frozenset[int]().union(*(each.ports for each in _parse(entries) if not isinstance(each.host, str)))


def _parse(entries: Sequence[str]) -> list[AllowedHost]:
    return [each for each in map(parse_allowed_host, entries) if each is not None]


def _names_host(entry: str | IpNetwork, host: str, *, by_suffix: bool) -> bool:
    if not isinstance(entry, str):
        return False
    return by_suffix and host.endswith(entry[1:]) if entry.startswith("*.") else host == entry
