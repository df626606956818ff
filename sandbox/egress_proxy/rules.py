"""Decides which hosts may be reached: pure rules over host names, ports and addresses.

Two checks must pass. The name, or ``*.`` and a parent domain, is on the list. The address that it resolves to is
public, so that no name on a list leads to this machine or its neighbours. Only an address that is itself on the list
may be private; a loopback address is that of the machine where the proxy runs.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

_WEB_PORTS = frozenset({80, 443})
NOT_A_HOST = "is not a host: write example.org, *.example.org or example.org:8080"
_ITSELF = "a sandbox reaches its own loopback without the proxy"


@dataclass(frozen=True, slots=True)
class AllowList:
    """The allowed hosts: ``example.org``, ``*.example.org`` (its subdomains, not itself), ``name:8080``; without a
    port, 80 and 443 are allowed."""

    entries: tuple[str, ...] = ()
    everywhere: bool = False
    """Allow any public host at any port."""

    def allows(self, host: str, port: int) -> bool:
        """Return whether a host may be reached at a port."""
        host = host.rstrip(".").lower()
        literal = parse_ip_address(host)
        if self.everywhere and (literal is None or literal.is_global):
            return True
        return port in self.ports(host)

    def ports(self, host: str) -> frozenset[int]:
        """Return the ports at which the entries allow a host."""
        host = host.rstrip(".").lower()
        by_suffix = parse_ip_address(host) is None
        return frozenset[int]().union(*(_ports(entry.lower(), host, by_suffix=by_suffix) for entry in self.entries))

    def allows_address(self, host: str, address: str) -> bool:
        """Return whether ``host``, which is allowed, may be reached at the address that it resolved to."""
        literal = parse_ip_address(address)
        return literal is not None and (literal.is_global or parse_ip_address(host) == literal)


def parse_ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address if a host is written as one; None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


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


def explain_unreachable(entry: str) -> str:
    """Return why an entry cannot be reached, or is not what it seems; empty for one that may be right."""
    parts = split_authority(entry, 0)
    if parts is None:
        return f"which {NOT_A_HOST}"
    name = parts[0].removeprefix("*.").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return f"which the proxy refuses: a name must lead to a public address, and {_ITSELF}"
    address = parse_ip_address(name)
    if address is not None and (address.is_loopback or address.is_unspecified):
        return f"which at the proxy is the machine that it runs on: {_ITSELF}"
    return ""


def _ports(entry: str, host: str, *, by_suffix: bool) -> frozenset[int]:
    parts = split_authority(entry, 0)
    if parts is None:
        return frozenset()
    name, port = parts
    matches = by_suffix and host.endswith(name[1:]) if name.startswith("*.") else host == name
    if not matches:
        return frozenset()
    return frozenset({port}) if port else _WEB_PORTS
