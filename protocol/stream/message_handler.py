"""The receiver's reaction to each message, without socket, task or clock.

It answers senders by the rules of :class:`~protocol.stream.inbox.StreamInbox`, checks arriving trajectories, queues
them until they are appended, and then acknowledges them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from protocol import codec
from protocol.journal import AppendOutcome, TrajectoryArrival
from protocol.stream.inbox import SenderEpoch, StreamInbox, StreamRefusal
from protocol.stream.messages import (
    MAX_ACK_SEQS,
    RefusalReason,
    StreamAck,
    StreamBye,
    StreamData,
    StreamHello,
    StreamMessage,
    StreamMessageError,
    StreamNack,
    StreamPing,
    StreamResync,
    decode_message,
    encode_message,
    message_kind,
)
from protocol.stream.notices import PeerNotices
from protocol.trajectory import TRAIN_PURPOSE

SendAnswer: TypeAlias = Callable[[bytes, bytes], bool]
"""Sends (identity, encoded message) without waiting; returns False if that is not possible."""

FindFault: TypeAlias = Callable[[codec.TrajectorySummary], str | None]
"""Returns why the run cannot use a trajectory; None if it can."""


class ReceivedTrajectory(NamedTuple):
    """A trajectory whose frames were checked."""

    summary: codec.TrajectorySummary
    frames: Sequence[codec.Frame]
    sender: str

    def to_arrival(self) -> TrajectoryArrival:
        """Return the trajectory as the journal takes it; this copies the frames into one blob."""
        summary = self.summary
        return TrajectoryArrival(
            summary.request,
            summary.reward.total,
            summary.passed,
            summary.status,
            summary.digest,
            codec.pack_frames(self.frames),
            summary.sampled,
        )


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A trajectory that has arrived and is not yet appended."""

    identity: bytes
    peer: SenderEpoch
    seq: int
    size: int
    item: ReceivedTrajectory


class StreamMessageHandler:
    """The receiver's answers and its queue of trajectories to append."""

    def __init__(
        self,
        inbox: StreamInbox,
        send: SendAnswer,
        notices: PeerNotices,
        *,
        batch_bytes: int,
        find_fault: FindFault | None = None,
    ) -> None:
        self._send, self._notices, self._batch_bytes, self._find_fault = send, notices, batch_bytes, find_fault
        self.inbox = inbox
        self.waiting: deque[PendingAppend] = deque()
        """Trajectories to append, oldest first."""
        self.waiting_bytes = self.received = self.acknowledged = 0

    def handle_message(self, identity: bytes, frames: list[memoryview], now: float) -> None:
        """Act on one message of the sender with this connection identity."""
        try:
            message = decode_message(frames[0] if frames else b"")
        except StreamMessageError as error:
            self._refuse(identity, 0, StreamRefusal(RefusalReason.MALFORMED, str(error)))
            return
        if len(frames) > 1 and not isinstance(message, StreamData):
            detail = f"{len(frames)} frames for a message that has one"
            self._refuse(identity, 0, StreamRefusal(RefusalReason.MALFORMED, detail))
            return
        peer = self.inbox.peers.get(identity)
        if peer is not None:
            peer.last_heard = now
        match message:
            case StreamData():
                self._handle_data(identity, message, frames[1:])
            case StreamHello():
                answer = self.inbox.handle_hello(identity, message, now)
                if isinstance(answer, StreamRefusal):
                    self._refuse(identity, 0, answer, message.sender)
                else:
                    self._answer(identity, answer)
            case StreamPing():
                self._answer(identity, self.inbox.handle_ping(identity, message))
            case StreamBye():
                self.inbox.handle_bye(identity)
            case _:
                self._refuse(identity, 0, StreamRefusal(RefusalReason.MALFORMED, "only receivers send this message"))

    def _handle_data(self, identity: bytes, data: StreamData, frames: list[memoryview]) -> None:
        size = codec.payload_size(frames)
        peer = self.inbox.handle_data(identity, data, size)
        if peer is None:
            return
        if isinstance(peer, StreamResync):
            self._answer(identity, peer)
            return
        self.received += 1
        if isinstance(peer, StreamRefusal):
            self._refuse(identity, data.seq, peer)
            return
        item = self._check(frames, peer.sender)
        if isinstance(item, StreamRefusal):
            peer.done += size
            self._refuse(identity, data.seq, item)
            return
        self.waiting.append(PendingAppend(identity, peer, data.seq, size, item))
        self.waiting_bytes += size

    def _check(self, frames: list[memoryview], sender: str) -> ReceivedTrajectory | StreamRefusal:
        try:
            summary = codec.inspect_frames(frames, max_bytes=self.inbox.max_bytes)
        except codec.CodecError as error:
            return StreamRefusal(RefusalReason.MALFORMED, str(error))
        request = summary.request
        if request.run_id != self.inbox.run_id:
            detail = f"the trajectory belongs to run {request.run_id!r}, not {self.inbox.run_id!r}"
            return StreamRefusal(RefusalReason.FOREIGN_RUN, detail)
        if request.purpose != TRAIN_PURPOSE:
            return StreamRefusal(RefusalReason.NOT_FOR_TRAINING, f"{request.trajectory_id} is for {request.purpose!r}")
        if self._find_fault is not None and (fault := self._find_fault(summary)) is not None:
            return StreamRefusal(RefusalReason.UNUSABLE, f"{request.trajectory_id}: {fault}")
        return ReceivedTrajectory(summary, frames, sender)

    def take_batch(self) -> list[PendingAppend]:
        """Remove and return the oldest waiting trajectories: at least one, and at most ``batch_bytes``.  The queue must
        not be empty."""
        batch = [self.waiting.popleft()]
        size = batch[0].size
        while self.waiting and size + self.waiting[0].size <= self._batch_bytes:
            batch.append(self.waiting.popleft())
            size += batch[-1].size
        return batch

    def acknowledge(self, batch: Sequence[PendingAppend], outcomes: Sequence[AppendOutcome]) -> None:
        """Answer the senders of a batch that is durable, with as few messages as possible."""
        answers: dict[SenderEpoch, tuple[bytes, list[int], list[str]]] = {}
        for pending, outcome in zip(batch, outcomes, strict=True):
            self.waiting_bytes -= pending.size
            pending.peer.done += pending.size
            self.acknowledged += outcome is not AppendOutcome.UNKNOWN
            _, seqs, names = answers.setdefault(pending.peer, (pending.identity, [], []))
            seqs.append(pending.seq)
            names.append(outcome.value)
        for peer, (identity, seqs, names) in answers.items():
            for first in range(0, len(seqs), MAX_ACK_SEQS):
                some = slice(first, first + MAX_ACK_SEQS)
                self._answer(identity, StreamAck(peer.epoch, self.inbox.grant_credit(peer), seqs[some], names[some]))

    def _refuse(self, identity: bytes, seq: int, refused: StreamRefusal, sender: str = "") -> None:
        self._notices.report_refused(refused, sender or self.inbox.sender_name(identity))
        self._answer(identity, StreamNack(seq, refused.reason.value, refused.detail))

    def _answer(self, identity: bytes, message: StreamMessage) -> None:
        """Send without waiting; the sender's next ping recovers an answer that could not be sent."""
        if not self._send(identity, encode_message(message)):
            self._notices.report_unroutable(self.inbox.sender_name(identity), message_kind(message))
