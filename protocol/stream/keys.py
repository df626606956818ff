"""CURVE keys of one run, generated when it starts and distributed by Ray.

The receiver has a key pair and the public keys of the senders that it admits; each sender has its own pair and the
receiver's public key.  Beyond loopback nothing is sent or accepted without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import zmq

from protocol.errors import UserError
from protocol.processes.loopback import is_loopback


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
        raise UserError("this ZeroMQ has no CURVE, without which nothing leaves the machine: reinstall the pyzmq wheel")
    public, secret = zmq.curve_keypair()
    clients = {name: CurveClient(*zmq.curve_keypair(), public) for name in senders}
    return RunKeys(CurveServer(public, secret, frozenset(each.public for each in clients.values())), clients)


def require_keys(host: str, curve: CurveClient | CurveServer | None) -> None:
    """Raise UserError for an address beyond loopback without keys."""
    if curve is None and not is_loopback(host):
        raise UserError(
            f"trajectories would be sent to {host} unencrypted and unauthenticated: give both ends the keys of "
            "protocol.stream.make_run_keys, or use 127.0.0.1"
        )


class CurveAllowlist:
    """Credentials callback for ZeroMQ's authenticator."""

    def __init__(self, keys: frozenset[bytes], refuse: Callable[[bytes], None]) -> None:
        self._keys, self._refuse = keys, refuse

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002  # the authenticator passes it
        if key in self._keys:
            return True
        self._refuse(key)
        return False
