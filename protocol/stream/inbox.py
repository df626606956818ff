"""The receiver's count of bytes and credit for each sender: pure, without socket or clock."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.stream.messages import (
    STREAM_PROTOCOL_VERSION,
    RefusalReason,
    StreamData,
    StreamHello,
    StreamMessage,
    StreamPing,
    StreamResync,
    StreamState,
    StreamWelcome,
)

_FORGET_PEER_S = 600.0
_LOOK_S = 60.0
"""Seconds between two searches for peers to forget: one at each of many hellos would hold up the buffer."""


@dataclass(slots=True, eq=False)
class SenderEpoch:
    """One epoch of one sender."""

    sender: str
    epoch: int
    last_heard: float
    received: int = 0
    """Bytes of the epoch that have arrived."""
    done: int = 0
    """Bytes of the epoch that have been answered."""
    credit: int = 0
    """Offset up to which the sender may send; it never decreases."""


@dataclass(frozen=True, slots=True)
class StreamRefusal:
    reason: RefusalReason
    detail: str


class StreamInbox:
    """The receiver's half of the protocol: senders, their epochs and their credit."""

    def __init__(self, run_id: str, window_bytes: int, max_bytes: int, all_windows_bytes: int) -> None:
        self.run_id, self.max_bytes = run_id, max_bytes
        self._window = window_bytes
        self._all_windows = all_windows_bytes
        self.peers: dict[bytes, SenderEpoch] = {}
        """Senders by ZeroMQ connection identity."""
        self._look_at = 0.0

    def grant_credit(self, peer: SenderEpoch) -> int:
        """Return the offset up to which the sender may send in this epoch: a window beyond the answered bytes.  Windows
        shrink with the number of senders, but each has room for one trajectory."""
        share = self._all_windows // max(1, len(self.peers))
        peer.credit = max(peer.credit, peer.done + max(self.max_bytes, min(self._window, share)))
        return peer.credit

    def handle_hello(self, identity: bytes, hello: StreamHello, now: float) -> StreamMessage | StreamRefusal:
        if hello.protocol != STREAM_PROTOCOL_VERSION:
            detail = (
                f"it speaks protocol {hello.protocol}, the buffer {STREAM_PROTOCOL_VERSION}: run one longshore version "
                "on all nodes"
            )
            return StreamRefusal(RefusalReason.PROTOCOL_VERSION, detail)
        if hello.run_id != self.run_id:
            return StreamRefusal(
                RefusalReason.FOREIGN_RUN, f"it belongs to run {hello.run_id!r}, this buffer to {self.run_id!r}"
            )
        if now >= self._look_at:
            self.peers = {key: peer for key, peer in self.peers.items() if now - peer.last_heard < _FORGET_PEER_S}
            self._look_at = now + _LOOK_S
        peer = self.peers.get(identity)
        if peer is None or hello.epoch > peer.epoch:
            peer = self.peers[identity] = SenderEpoch(hello.sender, hello.epoch, now)
        return StreamWelcome(peer.epoch, self.grant_credit(peer), self.max_bytes)

    def handle_ping(self, identity: bytes, ping: StreamPing) -> StreamMessage:
        peer = self.peers.get(identity)
        if peer is None or ping.epoch > peer.epoch or peer.received != ping.sent:
            return StreamResync(ping.epoch)
        return StreamState(peer.epoch, peer.done, self.grant_credit(peer))

    def handle_data(
        self, identity: bytes, data: StreamData, size: int
    ) -> SenderEpoch | StreamRefusal | StreamResync | None:
        """Return the sender whose trajectory of ``size`` bytes is accepted; None for data of an old epoch, which will
        be sent again."""
        peer = self.peers.get(identity)
        if peer is None or data.epoch > peer.epoch:
            return StreamResync(data.epoch)
        if data.epoch < peer.epoch:
            return None
        over_credit = peer.received + size > peer.credit
        peer.received += size
        if size <= self.max_bytes and not over_credit:
            return peer
        peer.done += size
        if size > self.max_bytes:
            return StreamRefusal(RefusalReason.OVERSIZED, f"{size} bytes are above the limit of {self.max_bytes}")
        return StreamRefusal(RefusalReason.OVER_CREDIT, f"{size} bytes are above the credit")

    def handle_bye(self, identity: bytes) -> None:
        self.peers.pop(identity, None)

    def sender_name(self, identity: bytes) -> str:
        peer = self.peers.get(identity)
        return peer.sender if peer is not None else identity.hex()
