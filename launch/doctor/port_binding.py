"""Ports and addresses on loopback."""

from __future__ import annotations

import socket

from protocol.errors import UserError
from protocol.processes import loopback


def require_free_port(port: int, key: str) -> None:
    """Raise UserError when ``port`` (0: any) is taken; ``key`` is the configuration's name for it."""
    if not port:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"port {port} is in use ({error.strerror}): use another, --set {key}=PORT, or 0 for a free one"
            ) from error


def is_loopback_endpoint(address: str) -> bool:
    """Whether ``host:port`` is this machine alone."""
    return loopback.is_loopback(address.rpartition(":")[0].strip("[]"))
