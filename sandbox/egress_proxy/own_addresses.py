"""Tells this machine's own addresses, by its kernel's routes."""

from __future__ import annotations

import socket

from sandbox.ip_addresses import parse_ip_address

_ANY_PORT = 9


def is_own_address(address: str) -> bool:
    """Return whether a connection to the address would end on this machine. Sends nothing.

    The kernel answers a machine's own addresses from the very same address. One of IPv4 that IPv6 only carries is
    judged as itself. What a router sends back to this machine (its public address behind NAT) is not seen.
    """
    address = str(parse_ip_address(address) or address)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            return probe.getsockname()[0] == probe.getpeername()[0]
    except OSError:
        return False  # no route: nothing can be reached at it
