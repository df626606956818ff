"""Trajectories from workers to the buffer: ZeroMQ DEALER → ROUTER, credit, and an ACK after the durable append.

``await sender.send(trajectory, deadline_s)`` returns when the receiver's ``append`` has returned for it, which is when
it is durable.  Until then the sender keeps it, and sends it again whenever the receiver misses anything.

How nothing is lost: a sender's life is cut into epochs.  A ``Ping`` says how many bytes of the epoch went before it on
the same ordered socket; a receiver that counted another number (a connection broke, the receiver is new) answers
``Resync``, and the sender starts a new epoch with a ``Hello`` and sends again what is not acknowledged.  A lost ACK
shows as a ``State`` that has answered everything sent while something still waits.  Sending twice is harmless: the
journal knows the trajectory, and the second is acknowledged as well.

How nothing grows: credit is an absolute offset (bytes answered in this epoch plus the window), repeated in each ACK,
``Welcome`` and ``State``, so a lost message cannot leak any.  A sender holds data back until credit covers it.

How it ends: leaving ``async with`` cancels the tasks inside and closes the socket at once (linger 0); what was not
acknowledged raises :class:`SenderClosed` in its ``send`` and is named by :attr:`TrajectorySender.unacknowledged`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias, cast

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from protocol import codec
from protocol.errors import InfraError
from protocol.journal import AppendOutcome
from protocol.messages import (
    PROTOCOL,
    Ack,
    Bye,
    Data,
    Hello,
    Message,
    MessageError,
    Nack,
    Ping,
    Refusal,
    Resync,
    State,
    Welcome,
    read_message,
    write_message,
)
from protocol.trajectory import Trajectory

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
_HEARTBEAT_S = 1.0
_BATCH_BYTES = 64 * 1024 * 1024
_FORGET_PEER_S = 600.0
_TRAIN = "train"


class StreamError(InfraError):
    """A trajectory was not acknowledged."""


class MessageRefused(StreamError):
    """The receiver refuses this trajectory, or this sender; sending again is no use."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"the buffer refused it ({self.reason}): {self.detail}"


class NotAcknowledged(StreamError):
    """No answer within the deadline.  The trajectory may or may not be in the journal."""


class SenderClosed(StreamError):
    """The sender was closed first.  The trajectory may or may not be in the journal."""


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


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    epochs: int
    sent: int
    """Messages, repetitions included."""
    unacknowledged: int


@dataclass(slots=True, eq=False)
class _Pending:
    seq: int
    name: str
    frames: list[bytes]
    size: int
    answer: asyncio.Future[AppendOutcome]
    epoch: int = 0
    """In which it was sent last."""


class TrajectorySender:
    """Sends trajectories of one worker.  ``async with`` owns its tasks; ``send`` may be called by many at once."""

    def __init__(
        self,
        endpoint: str,
        run_id: str,
        sender_id: str,
        *,
        heartbeat_s: float = _HEARTBEAT_S,
        curve: CurveClient | None = None,
    ) -> None:
        self.endpoint, self.run_id, self.sender_id = endpoint, run_id, sender_id
        self.unacknowledged: list[str] = []
        """After the close: ids of trajectories whose fate is unknown."""
        self._heartbeat_s, self._curve = heartbeat_s, curve
        self._pending: dict[int, _Pending] = {}
        self._work = asyncio.Event()
        self._seq = self._sent_messages = 0
        self._epoch = 1
        self._welcomed = False
        self._sent = self._credit = self._max_bytes = 0
        self._refused: MessageRefused | None = None
        self._closed = True

    async def __aenter__(self) -> Self:
        self._context = zmq.asyncio.Context()
        self._socket = socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.set_hwm(64)
        socket.setsockopt(zmq.ROUTING_ID, f"{self.sender_id[:200]}/{secrets.token_hex(8)}".encode()[-255:])
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        _watch_connection(socket)
        if self._curve is not None:
            socket.curve_publickey, socket.curve_secretkey = self._curve.public, self._curve.secret
            socket.curve_serverkey = self._curve.server
        socket.connect(self.endpoint)
        self._closed = False
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(self._read()), self._tasks.create_task(self._write())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self.unacknowledged = [item.name for item in self._pending.values()]
        for item in self._pending.values():
            if not item.answer.done():
                item.answer.set_exception(SenderClosed(f"the sender was closed before {item.name} was acknowledged"))
        for task in self._running:
            task.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # what the body raised stays as it is
        finally:
            _send_now(self._socket, [write_message(Bye())])
            self._context.destroy(linger=0)

    async def send(self, trajectory: Trajectory, deadline_s: float) -> AppendOutcome:
        """Returns once ``trajectory`` is durable, with what became of it (``unknown``: no group waits for it).

        Raises CodecError for a trajectory that breaks an invariant, and StreamError: :class:`MessageRefused`,
        :class:`NotAcknowledged` after ``deadline_s``, :class:`SenderClosed`.
        """
        name = trajectory.ticket.trajectory_id
        frames = codec.encode(trajectory)
        size = codec.payload_size(frames)
        if self._closed:
            raise SenderClosed(f"the sender is closed; {name} was not sent")
        self._check(size)
        self._seq += 1
        item = _Pending(self._seq, name, frames, size, asyncio.get_running_loop().create_future())
        self._pending[item.seq] = item
        self._work.set()
        try:
            async with asyncio.timeout(deadline_s):
                return await item.answer
        except TimeoutError:
            raise NotAcknowledged(
                f"no acknowledgement of {name} from {self.endpoint} within {deadline_s:g} s"
                + ("" if self._welcomed else "; the buffer does not answer")
            ) from None
        finally:
            self._pending.pop(item.seq, None)

    def statistics(self) -> SenderStatistics:
        return SenderStatistics(self._epoch, self._sent_messages, len(self._pending))

    def _check(self, size: int) -> None:
        if self._refused is not None:
            raise MessageRefused(self._refused.reason, self._refused.detail)
        if self._welcomed and size > self._max_bytes:
            raise MessageRefused(Refusal.OVERSIZED, f"{size} bytes are above the limit of {self._max_bytes}")

    async def _write(self) -> None:
        """The only task that sends, so that what a ping says is true."""
        due = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            self._work.clear()
            if clock() >= due:
                due = clock() + self._heartbeat_s
                await self._send(self._greeting())
            elif (item := self._sendable()) is not None:
                item.epoch = self._epoch
                self._sent += item.size
                self._sent_messages += 1
                await self._send(Data(self._epoch, item.seq), item.frames)
            else:
                epoch = self._epoch
                try:
                    async with asyncio.timeout_at(due):
                        await self._work.wait()
                except TimeoutError:
                    pass
                if self._epoch != epoch:
                    due = 0.0

    def _greeting(self) -> Message:
        if self._welcomed:
            return Ping(self._epoch, self._sent)
        return Hello(PROTOCOL, self.run_id, self.sender_id, self._epoch)

    def _sendable(self) -> _Pending | None:
        """The oldest that was not sent in this epoch, if credit covers it."""
        if not self._welcomed:
            return None
        for item in self._pending.values():
            if item.epoch != self._epoch:
                return item if self._sent + item.size <= self._credit else None
        return None

    async def _send(self, message: Message, frames: Sequence[bytes] = ()) -> None:
        await _send(self._socket, [write_message(message), *frames])

    async def _read(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            try:
                message = read_message(frames[0])
            except MessageError:
                continue
            self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case Welcome() if message.epoch == self._epoch:
                self._welcomed, self._max_bytes = True, message.max_bytes
                self._extend(message.credit)
                for item in list(self._pending.values()):
                    if item.size > self._max_bytes:
                        self._take(Nack(item.seq, Refusal.OVERSIZED, f"{item.size} bytes; limit {self._max_bytes}"))
            case Ack():
                item = self._pending.pop(message.seq, None)
                if item is not None and not item.answer.done():
                    item.answer.set_result(AppendOutcome(message.outcome))
                if message.epoch == self._epoch:
                    self._extend(message.credit)
            case Nack():
                self._take_refusal(MessageRefused(Refusal(message.reason), message.detail), message.seq)
            case State() if message.epoch == self._epoch:
                self._extend(message.credit)
                if message.done == self._sent and any(item.epoch == self._epoch for item in self._pending.values()):
                    self._start_epoch()
            case Resync() if message.epoch == self._epoch:
                self._start_epoch()
            case _:
                pass

    def _take_refusal(self, refusal: MessageRefused, seq: int) -> None:
        if seq == 0:
            self._refused = refusal
        refused = list(self._pending) if seq == 0 else [seq]
        for each in refused:
            item = self._pending.pop(each, None)
            if item is not None and not item.answer.done():
                item.answer.set_exception(MessageRefused(refusal.reason, refusal.detail))

    def _extend(self, credit: int) -> None:
        self._credit = max(self._credit, credit)
        self._work.set()

    def _start_epoch(self) -> None:
        self._epoch += 1
        self._welcomed = False
        self._sent = self._credit = 0
        self._work.set()


@dataclass(frozen=True, slots=True)
class Received:
    """A trajectory that was checked, and its packed blob."""

    trajectory: Trajectory
    blob: bytes
    digest: bytes
    sender: str


Append: TypeAlias = Callable[[Sequence[Received]], Awaitable[Sequence[AppendOutcome]]]
OnRefused: TypeAlias = Callable[[Refusal, str, str], None]
"""Called with reason, sender and detail."""


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    senders: int
    pending_bytes: int
    received: int
    acknowledged: int
    refused: dict[Refusal, int]
    lost_replies: int
    """Answers that found no connection; the sender asks again."""
    failed_appends: int
    """Batches that ``append`` could not store; each is tried again until it can."""


@dataclass(slots=True, eq=False)
class _Peer:
    sender: str
    epoch: int
    heard: float
    received: int = 0
    done: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    identity: bytes
    peer: _Peer
    data: Data
    size: int
    item: Received


@dataclass(slots=True)
class _Counts:
    received: int = 0
    acknowledged: int = 0
    lost_replies: int = 0
    failed_appends: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter[Refusal])


class TrajectoryReceiver:
    """Takes trajectories of one run from any number of senders.  ``async with`` owns its tasks.

    ``append`` gets what has arrived since it last returned and returns when that is durable; when it raises InfraError
    (a full disk, say) nothing is acknowledged, and the same batch is tried again every ``retry_s``.
    """

    def __init__(
        self,
        run_id: str,
        append: Append,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        window_bytes: int | None = None,
        on_refused: OnRefused | None = None,
        curve: CurveServer | None = None,
        retry_s: float = 1.0,
    ) -> None:
        self.run_id, self.host, self.port, self.max_bytes = run_id, host, port, max_bytes
        self.window_bytes = max(max_bytes, 2 * max_bytes if window_bytes is None else window_bytes)
        """Bytes that one sender may have unanswered."""
        self._append, self._on_refused, self._curve, self._retry_s = append, on_refused, curve, retry_s
        self._peers: dict[bytes, _Peer] = {}
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._counts = _Counts()

    @property
    def endpoint(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Raises InfraError if the port cannot be bound."""
        self._context = zmq.asyncio.Context()
        self._authenticator: AsyncioAuthenticator | None = None
        try:
            self._socket = self._bind()
        except zmq.ZMQError as error:
            self._leave()
            raise InfraError(f"cannot listen on {self.endpoint}: {error}") from error
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(self._receive()), self._tasks.create_task(self._store())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # what the body raised stays as it is
        finally:
            self._leave()

    def _bind(self) -> zmq.asyncio.Socket:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.rcvhwm, socket.sndhwm = 256, 1024
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, 2 * self.max_bytes + 65536)
        _watch_connection(socket)
        if self._curve is not None:
            self._authenticator = AsyncioAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback("*", _Admitted(self._curve.clients, self._refuse_key))
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = self._curve.public, self._curve.secret
        socket.bind(self.endpoint)
        self.port = int(cast("bytes", socket.last_endpoint).rpartition(b":")[2])
        return socket

    def _leave(self) -> None:
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=0)

    def statistics(self) -> ReceiverStatistics:
        counts = self._counts
        return ReceiverStatistics(
            len(self._peers),
            self._waiting_bytes,
            counts.received,
            counts.acknowledged,
            dict(counts.refused),
            counts.lost_replies,
            counts.failed_appends,
        )

    async def _receive(self) -> None:
        while True:
            while self._waiting_bytes > _BATCH_BYTES:
                self._room.clear()
                await self._room.wait()
            identity, *frames = await self._socket.recv_multipart()
            peer = self._peers.get(identity)
            try:
                message = read_message(frames[0] if frames else b"")
            except MessageError as error:
                self._refuse(identity, 0, _Refused(Refusal.MALFORMED, str(error)), _name(identity, peer))
                continue
            if peer is not None:
                peer.heard = asyncio.get_running_loop().time()
            match message:
                case Hello():
                    self._greet(identity, message)
                case Data():
                    self._take(identity, peer, message, frames[1:])
                case Ping():
                    if peer is None or message.epoch > peer.epoch or peer.received != message.sent:
                        self._reply(identity, Resync(message.epoch))
                    else:
                        self._reply(identity, State(peer.epoch, peer.done, peer.done + self.window_bytes))
                case Bye():
                    self._peers.pop(identity, None)
                case _:
                    refused = _Refused(Refusal.MALFORMED, "only receivers send this message")
                    self._refuse(identity, 0, refused, _name(identity, peer))

    def _greet(self, identity: bytes, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            detail = (
                f"it speaks protocol {hello.protocol}, the buffer {PROTOCOL}: run one longshore version on all nodes"
            )
            self._refuse(identity, 0, _Refused(Refusal.PROTOCOL_VERSION, detail), hello.sender)
            return
        if hello.run_id != self.run_id:
            detail = f"it belongs to run {hello.run_id!r}, this buffer to {self.run_id!r}"
            self._refuse(identity, 0, _Refused(Refusal.FOREIGN_RUN, detail), hello.sender)
            return
        now = asyncio.get_running_loop().time()
        self._peers = {key: peer for key, peer in self._peers.items() if now - peer.heard < _FORGET_PEER_S}
        peer = self._peers.get(identity)
        if peer is None or hello.epoch > peer.epoch:
            peer = self._peers[identity] = _Peer(hello.sender, hello.epoch, now)
        self._reply(identity, Welcome(peer.epoch, peer.done + self.window_bytes, self.max_bytes))

    def _take(self, identity: bytes, peer: _Peer | None, data: Data, frames: list[bytes]) -> None:
        if peer is None or data.epoch > peer.epoch:
            self._reply(identity, Resync(data.epoch))
            return
        if data.epoch < peer.epoch:
            return  # it comes again in the new epoch
        size = codec.payload_size(frames)
        over_credit = peer.received + size > peer.done + self.window_bytes
        peer.received += size
        self._counts.received += 1
        item = (
            _Refused(Refusal.OVERSIZED, f"{size} bytes are above the limit of {self.max_bytes}")
            if size > self.max_bytes
            else _Refused(Refusal.OVER_CREDIT, f"{size} bytes are above the credit")
            if over_credit
            else self._checked(frames, peer.sender)
        )
        if isinstance(item, _Refused):
            peer.done += size
            self._refuse(identity, data.seq, item, peer.sender)
            return
        self._waiting.append(_Waiting(identity, peer, data, size, item))
        self._waiting_bytes += size
        self._arrived.set()

    def _checked(self, frames: list[bytes], sender: str) -> Received | _Refused:
        try:
            trajectory = codec.decode(frames, max_bytes=self.max_bytes)
        except codec.CodecError as error:
            return _Refused(Refusal.MALFORMED, str(error))
        ticket = trajectory.ticket
        if ticket.run_id != self.run_id:
            return _Refused(
                Refusal.FOREIGN_RUN, f"the trajectory belongs to run {ticket.run_id!r}, not {self.run_id!r}"
            )
        if ticket.purpose != _TRAIN:
            return _Refused(Refusal.NOT_FOR_TRAINING, f"{ticket.trajectory_id} is for {ticket.purpose!r}")
        return Received(trajectory, codec.pack(frames), codec.digest(frames), sender)

    async def _store(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                batch = list(self._waiting)
                self._waiting.clear()
                outcomes = await self._append_until_stored([waiting.item for waiting in batch])
                for waiting, outcome in zip(batch, outcomes, strict=True):
                    self._acknowledge(waiting, outcome)

    async def _append_until_stored(self, items: Sequence[Received]) -> Sequence[AppendOutcome]:
        while True:
            try:
                return await self._append(items)
            except InfraError:
                self._counts.failed_appends += 1
                await asyncio.sleep(self._retry_s)

    def _acknowledge(self, waiting: _Waiting, outcome: AppendOutcome) -> None:
        self._waiting_bytes -= waiting.size
        self._room.set()
        self._counts.acknowledged += outcome is not AppendOutcome.UNKNOWN
        peer = waiting.peer  # of the epoch that it came in: a later epoch has another
        peer.done += waiting.size
        ack = Ack(waiting.data.seq, outcome.value, peer.done + self.window_bytes, peer.epoch)
        self._reply(waiting.identity, ack)

    def _refuse(self, identity: bytes, seq: int, refused: _Refused, sender: str) -> None:
        self._say_refused(refused, sender)
        self._reply(identity, Nack(seq, refused.reason.value, refused.detail))

    def _refuse_key(self, key: bytes) -> None:
        refused = _Refused(Refusal.UNAUTHENTICATED, "its public key is not admitted")
        self._say_refused(refused, key.decode("ascii", "replace"))

    def _say_refused(self, refused: _Refused, sender: str) -> None:
        self._counts.refused[refused.reason] += 1
        if self._on_refused is not None:
            self._on_refused(refused.reason, sender, refused.detail)

    def _reply(self, identity: bytes, message: Message) -> None:
        """Never waits: an answer that cannot leave is found missing by the sender's next ping."""
        self._counts.lost_replies += not _send_now(self._socket, [identity, write_message(message)])


@dataclass(frozen=True, slots=True)
class _Refused:
    reason: Refusal
    detail: str


class _Admitted:
    """What ZeroMQ's authenticator asks."""

    def __init__(self, keys: frozenset[bytes], refuse: Callable[[bytes], None]) -> None:
        self._keys, self._refuse = keys, refuse

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002  # the authenticator passes it
        if key in self._keys:
            return True
        self._refuse(key)
        return False


def _name(identity: bytes, peer: _Peer | None) -> str:
    return peer.sender if peer is not None else identity.hex()


def _send(socket: zmq.asyncio.Socket, frames: list[bytes], flags: int = 0) -> Awaitable[object]:
    return socket.send_multipart(frames, flags)  # pyright: ignore[reportUnknownMemberType]  # pyzmq's Sequence is bare


def _send_now(socket: zmq.asyncio.Socket, frames: list[bytes]) -> bool:
    """Send without waiting; False if that is not possible."""
    sent = cast("asyncio.Future[object]", _send(socket, frames, zmq.NOBLOCK))
    return sent.done() and sent.exception() is None


def _watch_connection(socket: zmq.asyncio.Socket) -> None:
    """Let ZeroMQ notice a peer that is gone without a word, and connect again."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 10000)
