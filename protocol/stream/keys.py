"""CURVE keys of one run: made when it starts, handed out by Ray, known to nobody else.

The receiver has a key pair and the public keys of the senders that it lets in; each sender has its own pair and the
receiver's public key.  Beyond loopback nothing is sent or taken without them.
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
    """Z85 keys of a receiver, and the public keys of the senders that it lets in."""

    public: bytes
    secret: bytes = field(repr=False)
    clients: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class RunKeys:
    """Fresh keys for one receiver and its senders, by name."""

    server: CurveServer
    clients: dict[str, CurveClient]


def make_run_keys(senders: Iterable[str]) -> RunKeys:
    """Raises UserError where ZeroMQ was built without CURVE."""
    if not zmq.has("curve"):
        raise UserError("this ZeroMQ has no CURVE, without which nothing leaves the machine: reinstall the pyzmq wheel")
    public, secret = zmq.curve_keypair()
    clients = {name: CurveClient(*zmq.curve_keypair(), public) for name in senders}
    return RunKeys(CurveServer(public, secret, frozenset(each.public for each in clients.values())), clients)


def require_keys(host: str, curve: CurveClient | CurveServer | None) -> None:
    """Raises UserError for an address that others can reach and no keys."""
    if curve is None and not is_loopback(host):
        raise UserError(
            f"trajectories would pass {host} in clear, for anybody to read and to write: give both ends the keys of "
            "protocol.stream.make_run_keys, or use 127.0.0.1"
        )


class CurveAllowlist:
    """What ZeroMQ's authenticator asks."""

    def __init__(self, keys: frozenset[bytes], refuse: Callable[[bytes], None]) -> None:
        self._keys, self._refuse = keys, refuse

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002  # the authenticator passes it
        if key in self._keys:
            return True
        self._refuse(key)
        return False
