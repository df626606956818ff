"""Loopback addresses and ports of this machine."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import random
import socket
from pathlib import Path

_PORTS = range(20_000, 65_536)
"""Above the ports of Ray's workers, 10002 to 19999."""
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


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
    """Return a port of 127.0.0.1 that nobody holds at this moment.

    It lies outside the kernel's ephemeral ports, where there are others: until somebody listens on it, no connection
    and no program that takes any port is given it.  Raises OSError if all are held.
    """
    ephemeral = range(*_read_ephemeral_ports())
    ports = [port for port in _PORTS if port not in ephemeral] or list(ephemeral)
    random.SystemRandom().shuffle(ports)  # two programs that look at the same time rarely find the same
    for port in ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(errno.EADDRINUSE, f"every port of 127.0.0.1 from {min(ports)} to {max(ports)} is held")


def _read_ephemeral_ports() -> tuple[int, int]:
    """Return the first ephemeral port and the one behind the last."""
    first, last = map(int, _EPHEMERAL_PORTS.read_text().split())
    return first, last + 1
