"""CURVE keys: who may connect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurveClient:
    """Z85 keys of a sender; ``server`` is the receiver's public key."""

    public: bytes
    secret: bytes
    server: bytes


@dataclass(frozen=True, slots=True)
class CurveServer:
    """Z85 keys of a receiver, and the public keys of the senders that it lets in."""

    public: bytes
    secret: bytes
    clients: frozenset[bytes]


class Admitted:
    """What ZeroMQ's authenticator asks."""

    def __init__(self, keys: frozenset[bytes], refuse: Callable[[bytes], None]) -> None:
        self._keys, self._refuse = keys, refuse

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002  # the authenticator passes it
        if key in self._keys:
            return True
        self._refuse(key)
        return False
