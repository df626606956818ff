"""The receiving end, in the buffer."""

from __future__ import annotations

import asyncio
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
from protocol.stream.keys import Admitted, CurveServer
from protocol.stream.sockets import send_now, watch_connection
from protocol.trajectory import Trajectory

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
_BATCH_BYTES = 64 * 1024 * 1024
_FORGET_PEER_S = 600.0
_TRAIN = "train"


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
        watch_connection(socket)
        if self._curve is not None:
            self._authenticator = AsyncioAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback("*", Admitted(self._curve.clients, self._refuse_key))
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
        self._counts.lost_replies += not send_now(self._socket, [identity, write_message(message)])


@dataclass(frozen=True, slots=True)
class _Refused:
    reason: Refusal
    detail: str


def _name(identity: bytes, peer: _Peer | None) -> str:
    return peer.sender if peer is not None else identity.hex()
