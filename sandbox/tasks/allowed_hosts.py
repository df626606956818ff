"""The hosts that a task asks for: their spelling, and which of them only the operator may allow. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox.ip_addresses import AddressKind, classify_address, parse_ip_address

NOT_A_HOST = "is not a host: write example.org, *.example.org or example.org:8080"
_WEB_PORTS = frozenset({80, 443})
_NAME = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)


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


def can_match(entry: str) -> bool:
    """Return whether an entry of an allow-list is a host, or names the subdomains of one: a URL, a range of addresses,
    or ``*`` in another place would allow nothing."""
    parts = split_authority(entry, 0)
    if parts is None:
        return False
    name, domain = parts[0], parts[0].removeprefix("*.")
    if parse_ip_address(domain) is not None:
        return name == domain
    return bool(_NAME.fullmatch(name))


def classify_host(name: str) -> AddressKind:
    """Return the kind of address that a host's name says by itself; public for any name that has to be resolved."""
    name = name.removeprefix("*.").rstrip(".").lower()
    if name.rpartition(".")[2] == "localhost":
        return AddressKind.LOOPBACK
    address = parse_ip_address(name)
    return classify_address(address) if address is not None else AddressKind.PUBLIC


def allowed_ports(entries: Sequence[str], host: str) -> frozenset[int]:
    """Return the ports at which the entries allow a host: those of the web, where an entry names none."""
    host = host.rstrip(".").lower()
    by_suffix = parse_ip_address(host) is None
    return frozenset[int]().union(*(_ports_of_entry(each.lower(), host, by_suffix=by_suffix) for each in entries))


def _ports_of_entry(entry: str, host: str, *, by_suffix: bool) -> frozenset[int]:
    parts = split_authority(entry, 0)
    if parts is None:
        return frozenset()
    name, port = parts[0].rstrip("."), parts[1]
    matches = by_suffix and host.endswith(name[1:]) if name.startswith("*.") else host == name
    if not matches:
        return frozenset()
    return frozenset({port}) if port else _WEB_PORTS
