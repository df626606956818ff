"""The sender's unacknowledged trajectories and its credit: pure, without socket or clock.

Trajectories are sent in the order in which they were added, as far as credit reaches.  A new epoch sends all unanswered
ones again in that order.
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
    """A trajectory that is not yet answered."""

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
        """Bytes of unanswered trajectories."""
        self.sent_messages = 0
        self.pending: dict[int, PendingTrajectory] = {}
        self.unsent: OrderedDict[int, PendingTrajectory] = OrderedDict()
        """Pending trajectories that were not sent in this epoch, oldest first."""
        self._seq = self._sent = self._credit = self._max_bytes = 0
        self._refused: MessageRefusedError | None = None

    @property
    def unacknowledged_ids(self) -> list[str]:
        """Ids of unanswered trajectories, oldest first."""
        return [pending.request.trajectory_id for pending in self.pending.values()]

    def __len__(self) -> int:
        return len(self.pending)

    def add(self, request: RolloutRequest, frames: Sequence[Frame]) -> PendingTrajectory:
        """Queue a trajectory.  Raises MessageRefusedError if the receiver is known to refuse it."""
        size = payload_size(frames)
        if self._refused is not None:
            raise MessageRefusedError(self._refused.reason, self._refused.detail)
        if self.welcomed and size > self._max_bytes:
            raise self._oversized(size)
        self._seq += 1
        pending = self.pending[self._seq] = PendingTrajectory(self._seq, request, frames, size)
        self.bytes += size
        self.unsent[pending.seq] = pending
        return pending

    def abandon(self, pending: PendingTrajectory) -> None:
        """Forget a trajectory whose caller has stopped waiting; a later answer is ignored."""
        if self.pending.pop(pending.seq, None) is not None:
            self.unsent.pop(pending.seq, None)
            self.bytes -= pending.size

    def heartbeat_message(self) -> StreamMessage:
        """Return the message of the next heartbeat."""
        if self.welcomed:
            return StreamPing(self.epoch, self._sent)
        return StreamHello(STREAM_PROTOCOL_VERSION, self._run_id, self._sender_id, self.epoch)

    def next_to_send(self) -> PendingTrajectory | None:
        """Return the trajectory to send now, which counts as sent; None if there is none or credit is used up."""
        if not self.welcomed or not self.unsent:
            return None
        pending = next(iter(self.unsent.values()))
        if self._sent + pending.size > self._credit:
            return None
        del self.unsent[pending.seq]
        self._sent += pending.size
        self.sent_messages += 1
        return pending

    def handle_message(self, message: StreamMessage) -> list[PendingTrajectoryAnswer]:
        """Process a message of the receiver and return the trajectories that it answers."""
        match message:
            case StreamAck():
                if message.epoch == self.epoch:
                    self._credit = max(self._credit, message.credit)
                outcomes = [AppendOutcome(outcome) for outcome in message.outcomes]
                return self._settle(dict(zip(message.seqs, outcomes, strict=True)))
            case StreamWelcome() if message.epoch == self.epoch:
                self.welcomed, self._max_bytes = True, message.max_bytes
                self._credit = max(self._credit, message.credit)
                large = [pending for pending in self.pending.values() if pending.size > self._max_bytes]
                return self._settle({pending.seq: self._oversized(pending.size) for pending in large})
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
                return self._settle(dict.fromkeys(self.pending if message.seq == 0 else [message.seq], refusal))
            case _:
                pass
        return []

    def _settle(self, answers: dict[int, AppendOutcome | MessageRefusedError]) -> list[PendingTrajectoryAnswer]:
        found: list[PendingTrajectoryAnswer] = []
        for seq, answer in answers.items():
            if (pending := self.pending.get(seq)) is not None:
                self.abandon(pending)
                found.append(PendingTrajectoryAnswer(pending, answer))
        return found

    def _start_epoch(self) -> None:
        self.epoch += 1
        self.welcomed = False
        self._sent = self._credit = 0
        self.unsent = OrderedDict(self.pending)

    def _oversized(self, size: int) -> MessageRefusedError:
        return MessageRefusedError(RefusalReason.OVERSIZED, f"{size} bytes are above the limit of {self._max_bytes}")
