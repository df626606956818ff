"""This machine's own addresses and ports."""

from __future__ import annotations

import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_endpoint(address: str) -> bool:
    """Return whether the host of ``host:port`` is this machine alone."""
    return is_loopback(address.rpartition(":")[0].strip("[]"))


def find_free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
