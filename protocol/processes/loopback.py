"""Loopback addresses and ports of this machine."""

from __future__ import annotations

import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_endpoint(address: str) -> bool:
    """Return whether the host of ``host:port`` is reachable from this machine only."""
    return is_loopback(address.rpartition(":")[0].strip("[]"))


def find_free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
