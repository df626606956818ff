"""What a sender owes and what it may send: pure, no socket and no clock.

Parcels leave in the order in which they came, as far as credit reaches.  A new epoch sends again, in that order, all
that is not answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.codec import Frame, payload_size
from protocol.journal import AppendOutcome
from protocol.stream.errors import MessageRefusedError
from protocol.stream.messages import (
    STREAM_PROTOCOL_VERSION,
    RefusalReason,
    StreamAck,
    StreamHello,
    StreamMessage,
    StreamNack,
    StreamPing,
    StreamResync,
    StreamState,
    StreamWelcome,
)
from protocol.trajectory import RolloutRequest


@dataclass(slots=True, eq=False)
class PendingTrajectory:
    """A trajectory on its way."""

    seq: int
    request: RolloutRequest
    frames: Sequence[Frame]
    size: int


class PendingTrajectoryAnswer(NamedTuple):
    pending: PendingTrajectory
    answer: AppendOutcome | MessageRefusedError


class StreamOutbox:
    """The sender's half of the protocol."""

    def __init__(self, run_id: str, sender_id: str) -> None:
        self._run_id, self._sender_id = run_id, sender_id
        self.epoch = 1
        self.welcomed = False
        self.bytes = 0
        """Of parcels that are not answered."""
        self.sent_messages = 0
        self.pending: dict[int, PendingTrajectory] = {}
        self.unsent: OrderedDict[int, PendingTrajectory] = OrderedDict()
        """Of those pending the ones that were not sent in this epoch, oldest first."""
        self._seq = self._sent = self._credit = self._max_bytes = 0
        self._refused: MessageRefusedError | None = None

    @property
    def unacknowledged_ids(self) -> list[str]:
        """Of parcels that are not answered, oldest first."""
        return [parcel.request.trajectory_id for parcel in self.pending.values()]

    def __len__(self) -> int:
        return len(self.pending)

    def add(self, ticket: RolloutRequest, frames: Sequence[Frame]) -> PendingTrajectory:
        """Raises MessageRefused where it is known to be."""
        size = payload_size(frames)
        if self._refused is not None:
            raise MessageRefusedError(self._refused.reason, self._refused.detail)
        if self.welcomed and size > self._max_bytes:
            raise self._oversized(size)
        self._seq += 1
        parcel = self.pending[self._seq] = PendingTrajectory(self._seq, ticket, frames, size)
        self.bytes += size
        self.unsent[parcel.seq] = parcel
        return parcel

    def abandon(self, parcel: PendingTrajectory) -> None:
        """Nobody waits for it any more; an answer that still comes is overlooked."""
        if self.pending.pop(parcel.seq, None) is not None:
            self.unsent.pop(parcel.seq, None)
            self.bytes -= parcel.size

    def heartbeat_message(self) -> StreamMessage:
        """What a heartbeat says."""
        if self.welcomed:
            return StreamPing(self.epoch, self._sent)
        return StreamHello(STREAM_PROTOCOL_VERSION, self._run_id, self._sender_id, self.epoch)

    def next_to_send(self) -> PendingTrajectory | None:
        """The parcel to send now; it counts as sent."""
        if not self.welcomed or not self.unsent:
            return None
        parcel = next(iter(self.unsent.values()))
        if self._sent + parcel.size > self._credit:
            return None
        del self.unsent[parcel.seq]
        self._sent += parcel.size
        self.sent_messages += 1
        return parcel

    def handle_message(self, message: StreamMessage) -> list[PendingTrajectoryAnswer]:
        """What ``message`` of the receiver answers."""
        match message:
            case StreamAck():
                if message.epoch == self.epoch:
                    self._credit = max(self._credit, message.credit)
                outcomes = [AppendOutcome(outcome) for outcome in message.outcomes]
                return self._answered(dict(zip(message.seqs, outcomes, strict=True)))
            case StreamWelcome() if message.epoch == self.epoch:
                self.welcomed, self._max_bytes = True, message.max_bytes
                self._credit = max(self._credit, message.credit)
                large = [parcel for parcel in self.pending.values() if parcel.size > self._max_bytes]
                return self._answered({parcel.seq: self._oversized(parcel.size) for parcel in large})
            case StreamState() if message.epoch == self.epoch:
                self._credit = max(self._credit, message.credit)
                if message.done == self._sent and len(self.pending) > len(self.unsent):
                    self._start_epoch()
            case StreamResync() if message.epoch == self.epoch:
                self._start_epoch()
            case StreamNack() if message.reason == RefusalReason.OVER_CREDIT:
                self._start_epoch()  # the receiver no longer knows what it had granted
            case StreamNack():
                refusal = MessageRefusedError(RefusalReason(message.reason), message.detail)
                if message.seq == 0:
                    self._refused = refusal
                return self._answered(dict.fromkeys(self.pending if message.seq == 0 else [message.seq], refusal))
            case _:
                pass
        return []

    def _answered(self, answers: dict[int, AppendOutcome | MessageRefusedError]) -> list[PendingTrajectoryAnswer]:
        found: list[PendingTrajectoryAnswer] = []
        for seq, answer in answers.items():
            if (parcel := self.pending.get(seq)) is not None:
                self.abandon(parcel)
                found.append(PendingTrajectoryAnswer(parcel, answer))
        return found

    def _start_epoch(self) -> None:
        self.epoch += 1
        self.welcomed = False
        self._sent = self._credit = 0
        self.unsent = OrderedDict(self.pending)

    def _oversized(self, size: int) -> MessageRefusedError:
        return MessageRefusedError(RefusalReason.OVERSIZED, f"{size} bytes are above the limit of {self._max_bytes}")
