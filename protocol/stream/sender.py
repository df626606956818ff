"""The sending end, in a worker."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import zmq
import zmq.asyncio

from protocol import codec
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
from protocol.stream.errors import MessageRefused, NotAcknowledged, SenderClosed
from protocol.stream.keys import CurveClient
from protocol.stream.sockets import send, send_now, watch_connection
from protocol.trajectory import Trajectory

_HEARTBEAT_S = 1.0


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
        watch_connection(socket)
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
            send_now(self._socket, [write_message(Bye())])
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
        await send(self._socket, [write_message(message), *frames])

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
