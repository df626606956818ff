"""CURVE keys of one run, generated when it starts and distributed by Ray.

The receiver has a key pair and the public keys of the senders that it admits; each sender has its own pair and the
receiver's public key.  Nothing is sent or accepted over TCP without them, on loopback neither: every account of the
machine can connect there.  A Unix socket needs no keys in a folder that only its owner can enter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from protocol.errors import UserError

UNIX_SCHEME = "ipc://"


@dataclass(frozen=True, slots=True)
class CurveClient:
    """Z85 keys of a sender; ``server`` is the receiver's public key."""

    public: bytes
    secret: bytes = field(repr=False)
    server: bytes


@dataclass(frozen=True, slots=True)
class CurveServer:
    """Z85 keys of a receiver, and the public keys of the senders that it admits."""

    public: bytes
    secret: bytes = field(repr=False)
    clients: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class RunKeys:
    """Fresh keys for one receiver and its senders, by name."""

    server: CurveServer
    clients: dict[str, CurveClient]


def make_run_keys(senders: Iterable[str]) -> RunKeys:
    """Generate keys for a receiver and ``senders``.  Raises UserError if ZeroMQ was built without CURVE."""
    if not zmq.has("curve"):
        raise UserError("this ZeroMQ has no CURVE, without which nothing is sent: reinstall the pyzmq wheel")
    public, secret = zmq.curve_keypair()
    clients = {name: CurveClient(*zmq.curve_keypair(), public) for name in senders}
    return RunKeys(CurveServer(public, secret, frozenset(each.public for each in clients.values())), clients)


def require_guard(endpoint: str, curve: CurveClient | CurveServer | None) -> None:
    """Raise UserError for a TCP endpoint without keys, and for a Unix socket in a folder that others can enter."""
    if not endpoint.startswith(UNIX_SCHEME):
        if curve is None:
            raise UserError(
                f"trajectories would be sent to {endpoint} unauthenticated: give both ends the keys of "
                "protocol.stream.make_run_keys, or a Unix socket in a private folder"
            )
        return
    folder = Path(endpoint.removeprefix(UNIX_SCHEME)).parent
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UserError(f"others may enter {folder}, whose permissions guard the socket in it: chmod 700 {folder}")


class CurveAllowlist:
    """Credentials callback for ZeroMQ's authenticator, in its thread."""

    def __init__(self, keys: frozenset[bytes], refuse: Callable[[bytes], object]) -> None:
        self._keys, self._refuse = keys, refuse

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002  # the authenticator passes it
        if key in self._keys:
            return True
        self._refuse(key)
        return False
