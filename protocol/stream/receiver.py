"""The receiving end, in the buffer: the socket and the appends around an :class:`~protocol.stream.inbox.Inbox`."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias, cast

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from protocol import codec
from protocol.errors import InfraError
from protocol.journal import AppendOutcome, TrajectoryArrival
from protocol.stream.connections import LISTENING_EVENTS, ConnectionTracker
from protocol.stream.inbox import SenderEpoch, StreamInbox, StreamRefusal
from protocol.stream.keys import CurveAllowlist, CurveServer, require_keys
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
)
from protocol.stream.throttle import NoticeThrottle
from protocol.stream.zmq_sockets import AsyncSocket, SocketMonitor, enable_heartbeats
from protocol.trajectory import TRAIN_PURPOSE

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
DEFAULT_BATCH_BYTES = 8 * 1024 * 1024
_WINDOW_BYTES, _ALL_WINDOWS_BYTES = 32 * 1024 * 1024, 256 * 1024 * 1024
_WAITING_BYTES = 64 * 1024 * 1024
_APPENDS = 2
"""At once: while one is being written, the next is made ready."""
_BURST = 8
"""Messages taken before others in this event loop, the acknowledging task for one, have their turn."""
_RECEIVE_HIGH_WATER, _SEND_HIGH_WATER = 256, 1024
"""Messages that may wait inside ZeroMQ for each sender: trajectories, whose bytes credit bounds, and answers."""
_TOLD_AT_ONCE, _TOLD_EVERY_S = 20, 10.0
"""How often one kind of refusal, and of other news of peers, is told."""


class ReceivedTrajectory(NamedTuple):
    """A trajectory that was checked."""

    summary: codec.TrajectorySummary
    frames: Sequence[codec.Frame]
    sender: str

    def to_arrival(self) -> TrajectoryArrival:
        """For the journal: this copies the frames into one blob."""
        summary, ticket = self.summary, self.summary.request
        return TrajectoryArrival(
            ticket.trajectory_id,
            ticket.group,
            ticket.sample,
            summary.reward.total,
            summary.passed,
            summary.status,
            summary.digest,
            codec.pack_frames(self.frames),
            summary.sampled,
        )


AppendTrajectories: TypeAlias = Callable[[Sequence[ReceivedTrajectory]], Awaitable[Sequence[AppendOutcome]]]
OnRefused: TypeAlias = Callable[[RefusalReason, str, str], None]
"""Called with reason, sender (or its address, or its key) and detail."""
OnUnroutable: TypeAlias = Callable[[str, str], None]
"""Called with the sender whom an answer did not reach, and the answer's kind."""
OnDisconnected: TypeAlias = Callable[[str], None]
"""Called with the address of a peer whose connection ended: its own doing, the network's, or a frame above the limit,
which ZeroMQ does not tell apart."""


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    senders: int
    pending_bytes: int
    """Of trajectories that arrived and are not appended."""
    received: int
    acknowledged: int
    refused: dict[RefusalReason, int]
    """All, also those that were not told."""
    unroutable: int
    """Answers that found no connection; the sender asks again."""
    failed_appends: int
    """Batches that ``append`` could not store; each is tried again until it can."""


@dataclass(slots=True, eq=False)
class _PendingAppend:
    identity: bytes
    peer: SenderEpoch
    seq: int
    size: int
    item: ReceivedTrajectory


@dataclass(slots=True)
class _Counts:
    received: int = 0
    acknowledged: int = 0
    unroutable: int = 0
    failed_appends: int = 0
    refused: Counter[RefusalReason] = field(default_factory=Counter[RefusalReason])


class TrajectoryReceiver:
    """Takes trajectories of one run from any number of senders.  ``async with`` owns its tasks.

    ``append`` gets what has arrived since it was last called, ``batch_bytes`` of it or one trajectory, and returns when
    that is durable; it is called with a second batch meanwhile.  When it raises InfraError (a full disk, say) nothing
    is acknowledged, and the same batch is tried again every ``retry_s``.

    What has arrived and is not appended takes at most ``window_bytes`` for each sender.  The n-th sender is granted a
    window of 256 MiB ÷ n (at least one trajectory); what the ones before it were granted is never taken back, only not
    renewed until they are within their own share.  Raises UserError for an address beyond loopback without keys.

    A message is refused that is too large in all; but ZeroMQ, which bounds a single frame, holds all frames of a
    message until the last has come, so that a peer who sends no last one can fill this process.  Only who is let in
    can: with keys those who have them, on loopback those on this machine.

    ``on_refused``, ``on_unroutable`` and ``on_disconnected`` are called at a bounded rate, however often a peer fails.
    """

    def __init__(
        self,
        run_id: str,
        append: AppendTrajectories,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        window_bytes: int | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_refused: OnRefused | None = None,
        on_unroutable: OnUnroutable | None = None,
        on_disconnected: OnDisconnected | None = None,
        curve: CurveServer | None = None,
        retry_s: float = 1.0,
    ) -> None:
        require_keys(host, curve)
        self.run_id, self.host, self.port, self.max_bytes = run_id, host, port, max_bytes
        self.window_bytes = max(max_bytes, _WINDOW_BYTES if window_bytes is None else window_bytes)
        """Bytes that one sender may have unanswered."""
        self._append, self._curve, self._retry_s, self._batch_bytes = append, curve, retry_s, batch_bytes
        self._on_refused, self._on_unroutable, self._on_disconnected = on_refused, on_unroutable, on_disconnected
        self._throttle = NoticeThrottle(_TOLD_AT_ONCE, _TOLD_EVERY_S)
        self._inbox = StreamInbox(run_id, self.window_bytes, max_bytes, _ALL_WINDOWS_BYTES)
        self._waiting: deque[_PendingAppend] = deque()
        self._waiting_bytes = 0
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._append_slots = asyncio.Semaphore(_APPENDS)
        self._counts = _Counts()

    @property
    def endpoint(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Raises InfraError if the port cannot be bound, or the process may open no more sockets."""
        self._context = zmq.Context[zmq.Socket[bytes]]()
        self._authenticator: AsyncioAuthenticator | None = None
        try:
            socket = self._bind()
            self._monitor = SocketMonitor(self._context, socket, LISTENING_EVENTS)
        except zmq.ZMQError as error:
            self._close_context()
            raise InfraError(f"cannot listen on {self.endpoint}: {error}") from error
        self._wire = AsyncSocket(socket)
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(each) for each in (self._receive(), self._store(), self._watch())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # what the body raised stays as it is
        finally:
            self._monitor.close()
            self._wire.close()
            self._close_context()

    def _bind(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.rcvhwm, socket.sndhwm = _RECEIVE_HIGH_WATER, _SEND_HIGH_WATER
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, 2 * self.max_bytes + 65536)
        socket.setsockopt(zmq.IPV6, int(":" in self.host))
        enable_heartbeats(socket)
        if self._curve is not None:
            self._authenticator = AsyncioAuthenticator(zmq.asyncio.Context(self._context))
            self._authenticator.start()
            self._authenticator.configure_curve_callback("*", CurveAllowlist(self._curve.clients, self._refuse_key))
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = self._curve.public, self._curve.secret
        socket.bind(self.endpoint)
        self.port = int(cast("bytes", socket.last_endpoint).rpartition(b":")[2])
        return socket

    def _close_context(self) -> None:
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=0)

    def statistics(self) -> ReceiverStatistics:
        counts = self._counts
        return ReceiverStatistics(
            len(self._inbox.peers),
            self._waiting_bytes,
            counts.received,
            counts.acknowledged,
            dict(counts.refused),
            counts.unroutable,
            counts.failed_appends,
        )

    async def _receive(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            while self._waiting_bytes > _WAITING_BYTES:
                self._room.clear()
                await self._room.wait()
            for identity, *frames in await self._wire.receive(_BURST):
                self._handle_message(bytes(identity), frames, now())
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        """Name those whom ZeroMQ turns away or loses."""
        connections = ConnectionTracker()
        while True:
            for event, value in await self._monitor.receive():
                if (ended := connections.handle_event(event, value)) is None:
                    continue
                if ended.failure is not None:
                    self._report_refused(ended.failure, ended.peer)
                elif self._on_disconnected is not None and self._admit("disconnected") is not None:
                    self._on_disconnected(ended.peer)

    def _handle_message(self, identity: bytes, frames: list[memoryview], now: float) -> None:
        try:
            message = decode_message(frames[0] if frames else b"")
        except StreamMessageError as error:
            self._refuse(identity, 0, StreamRefusal(RefusalReason.MALFORMED, str(error)))
            return
        if len(frames) > 1 and not isinstance(message, StreamData):
            self._refuse(
                identity,
                0,
                StreamRefusal(RefusalReason.MALFORMED, f"{len(frames)} frames, of which one says something"),
            )
            return
        peer = self._inbox.peers.get(identity)
        if peer is not None:
            peer.last_heard = now
        match message:
            case StreamData():
                self._handle_data(identity, message, frames[1:])
            case StreamHello():
                answer = self._inbox.handle_hello(identity, message, now)
                if isinstance(answer, StreamRefusal):
                    self._refuse(identity, 0, answer, message.sender)
                else:
                    self._reply(identity, answer)
            case StreamPing():
                self._reply(identity, self._inbox.handle_ping(identity, message))
            case StreamBye():
                self._inbox.handle_bye(identity)
            case _:
                self._refuse(identity, 0, StreamRefusal(RefusalReason.MALFORMED, "only receivers send this message"))

    def _handle_data(self, identity: bytes, data: StreamData, frames: list[memoryview]) -> None:
        size = codec.payload_size(frames)
        taken = self._inbox.handle_data(identity, data, size)
        if taken is None:
            return
        if isinstance(taken, StreamResync):
            self._reply(identity, taken)
            return
        self._counts.received += 1
        if isinstance(taken, StreamRefusal):
            self._refuse(identity, data.seq, taken)
            return
        item = self._checked(frames, taken.sender)
        if isinstance(item, StreamRefusal):
            taken.done += size
            self._refuse(identity, data.seq, item)
            return
        self._waiting.append(_PendingAppend(identity, taken, data.seq, size, item))
        self._waiting_bytes += size
        self._arrived.set()

    def _checked(self, frames: list[memoryview], sender: str) -> ReceivedTrajectory | StreamRefusal:
        try:
            summary = codec.inspect_frames(frames, max_bytes=self.max_bytes)
        except codec.CodecError as error:
            return StreamRefusal(RefusalReason.MALFORMED, str(error))
        ticket = summary.request
        if ticket.run_id != self.run_id:
            return StreamRefusal(
                RefusalReason.FOREIGN_RUN, f"the trajectory belongs to run {ticket.run_id!r}, not {self.run_id!r}"
            )
        if ticket.purpose != TRAIN_PURPOSE:
            return StreamRefusal(RefusalReason.NOT_FOR_TRAINING, f"{ticket.trajectory_id} is for {ticket.purpose!r}")
        return ReceivedTrajectory(summary, frames, sender)

    async def _store(self) -> None:
        async with asyncio.TaskGroup() as appends:
            while True:
                await self._append_slots.acquire()
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                appends.create_task(self._append_batch(self._batch()))

    async def _append_batch(self, batch: Sequence[_PendingAppend]) -> None:
        outcomes = await self._append_until_stored([waiting.item for waiting in batch])
        self._append_slots.release()
        self._acknowledge(batch, outcomes)

    def _batch(self) -> list[_PendingAppend]:
        batch = [self._waiting.popleft()]
        size = batch[0].size
        while self._waiting and size + self._waiting[0].size <= self._batch_bytes:
            batch.append(self._waiting.popleft())
            size += batch[-1].size
        return batch

    async def _append_until_stored(self, items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        while True:
            try:
                return await self._append(items)
            except InfraError:
                self._counts.failed_appends += 1
                await asyncio.sleep(self._retry_s)

    def _acknowledge(self, batch: Sequence[_PendingAppend], outcomes: Sequence[AppendOutcome]) -> None:
        """One answer to each sender, in as many messages as it takes."""
        answers: dict[
            SenderEpoch, tuple[bytes, list[int], list[str]]
        ] = {}  # a peer is one epoch: a later one is another
        for waiting, outcome in zip(batch, outcomes, strict=True):
            self._waiting_bytes -= waiting.size
            waiting.peer.done += waiting.size
            self._counts.acknowledged += outcome is not AppendOutcome.UNKNOWN
            _, seqs, names = answers.setdefault(waiting.peer, (waiting.identity, [], []))
            seqs.append(waiting.seq)
            names.append(outcome.value)
        self._room.set()
        for peer, (identity, seqs, names) in answers.items():
            for first in range(0, len(seqs), MAX_ACK_SEQS):
                some = slice(first, first + MAX_ACK_SEQS)
                self._reply(identity, StreamAck(peer.epoch, self._inbox.grant_credit(peer), seqs[some], names[some]))

    def _refuse(self, identity: bytes, seq: int, refused: StreamRefusal, sender: str = "") -> None:
        self._report_refused(refused, sender or self._inbox.sender_name(identity))
        self._reply(identity, StreamNack(seq, refused.reason.value, refused.detail))

    def _refuse_key(self, key: bytes) -> None:
        refused = StreamRefusal(RefusalReason.UNAUTHENTICATED, "its public key is not admitted")
        self._report_refused(refused, key.decode("ascii", "replace"))

    def _report_refused(self, refused: StreamRefusal, sender: str) -> None:
        self._counts.refused[refused.reason] += 1
        if self._on_refused is not None and (untold := self._admit(refused.reason)) is not None:
            more = f"; {untold} more of the kind since the last that was told" if untold else ""
            self._on_refused(refused.reason, sender, refused.detail + more)

    def _admit(self, kind: str) -> int | None:
        return self._throttle.admit(kind, asyncio.get_running_loop().time())

    def _reply(self, identity: bytes, message: StreamMessage) -> None:
        """Never waits: an answer that cannot leave is found missing by the sender's next ping."""
        if not self._wire.send_now([identity, encode_message(message)]):
            self._counts.unroutable += 1
            if self._on_unroutable is not None and self._admit("unroutable") is not None:
                self._on_unroutable(self._inbox.sender_name(identity), type(message).__name__.lower())
