"""The sending end, in a worker: the socket and the futures around an :class:`~protocol.stream.outbox.Outbox`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

import zmq

from protocol import codec
from protocol.journal import AppendOutcome
from protocol.stream.connections import CONNECTING_EVENTS, ConnectionTracker
from protocol.stream.errors import MessageRefusedError, NotAcknowledgedError, SenderClosedError
from protocol.stream.keys import CurveClient, require_keys
from protocol.stream.messages import StreamBye, StreamData, StreamMessageError, decode_message, encode_message
from protocol.stream.outbox import PendingTrajectory, PendingTrajectoryAnswer, StreamOutbox
from protocol.stream.zmq_sockets import AsyncSocket, SocketMonitor, enable_heartbeats
from protocol.trajectory import RolloutRequest, Trajectory

HEARTBEAT_S = 1.0
BUDGET_BYTES = 64 * 1024 * 1024
_HIGH_WATER = 512
"""Messages that may wait inside ZeroMQ, each way; credit bounds their bytes."""
_BURST = 8
"""Messages sent before others in this event loop have their turn."""
_BYE_MS = 500
"""The last word to a receiver that was there has so long to leave."""

OnAcknowledged = Callable[[RolloutRequest, AppendOutcome], None]


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    epochs: int
    sent: int
    """Messages, repetitions included."""
    unacknowledged: int
    bytes: int
    """Of trajectories that are not acknowledged: at most the budget, or one trajectory."""


class TrajectorySender:
    """Sends trajectories of one worker.  ``async with`` owns its tasks; ``send`` may be called by many at once.

    ``acknowledged`` hears of each answer as it comes, also of one that no ``send`` waits for any more.
    Raises UserError for an address beyond loopback without keys.
    """

    def __init__(
        self,
        endpoint: str,
        run_id: str,
        sender_id: str,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        budget_bytes: int = BUDGET_BYTES,
        curve: CurveClient | None = None,
        acknowledged: OnAcknowledged | None = None,
    ) -> None:
        require_keys(endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]"), curve)
        self.endpoint, self.run_id, self.sender_id = endpoint, run_id, sender_id
        self.unacknowledged: list[str] = []
        """After the close: ids of trajectories whose fate is unknown."""
        self._heartbeat_s, self._budget_bytes, self._curve = heartbeat_s, budget_bytes, curve
        self._acknowledged = acknowledged
        self._outbox = StreamOutbox(run_id, sender_id)
        self._answers: dict[int, asyncio.Future[AppendOutcome]] = {}
        self._work, self._room_freed = asyncio.Event(), asyncio.Event()
        self._room_lock = asyncio.Lock()
        """Of the caller who waits for room; the others wait for it in the order in which they came."""
        self._waiting = 0
        """Callers, he among them."""
        self._closed = True
        self._connection_trouble = ""
        """Why there is no connection, as far as ZeroMQ says."""

    async def __aenter__(self) -> Self:
        self._context = zmq.Context[zmq.Socket[bytes]]()
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.set_hwm(_HIGH_WATER)
        socket.setsockopt(zmq.ROUTING_ID, f"{self.sender_id[:200]}/{secrets.token_hex(8)}".encode()[-255:])
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        enable_heartbeats(socket)
        if self._curve is not None:
            socket.curve_publickey, socket.curve_secretkey = self._curve.public, self._curve.secret
            socket.curve_serverkey = self._curve.server
        socket.setsockopt(zmq.IPV6, int("[" in self.endpoint))
        socket.connect(self.endpoint)
        self._wire, self._monitor = AsyncSocket(socket), SocketMonitor(self._context, socket, CONNECTING_EVENTS)
        self._closed = False
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(each) for each in (self._read(), self._write(), self._watch())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._room_freed.set()
        self.unacknowledged = self._outbox.unacknowledged_ids
        for future in self._answers.values():
            if not future.done():
                future.set_exception(SenderClosedError)
        for task in self._running:
            task.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # what the body raised stays as it is
        finally:
            self._wire.send_now([encode_message(StreamBye())])
            self._monitor.close()
            self._wire.close(_BYE_MS if self._outbox.welcomed else 0)
            await asyncio.to_thread(self._context.term)

    async def send(self, trajectory: Trajectory, deadline_s: float) -> AppendOutcome:
        """Returns once ``trajectory`` is durable, with what became of it (``unknown``: no group waits for it).

        While others fill the budget it waits, not encoded yet, and who called first is first, however large.  Cancelled
        after that, it leaves the trajectory on its way: see :meth:`drain`.  Raises CodecError for a trajectory that
        has no place in frames, and StreamError: :class:`MessageRefused`, :class:`NotAcknowledged` after ``deadline_s``,
        :class:`SenderClosed`.
        """
        name = trajectory.request.trajectory_id
        parcel: PendingTrajectory | None = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        try:
            parcel = await self._add(trajectory, deadline)
            answer = self._answers[parcel.seq] = loop.create_future()
            expiry = loop.call_at(deadline, _expire, answer)
            self._work.set()
            try:
                return await answer
            finally:
                expiry.cancel()
        except TimeoutError:
            if parcel is not None:
                self._outbox.abandon(parcel)
            raise NotAcknowledgedError(
                f"no acknowledgement of {name} from {self.endpoint} within {deadline_s:g} s"
                + ("" if self._outbox.welcomed else "; the buffer does not answer")
                + (f" ({self._connection_trouble})" if self._connection_trouble else "")
            ) from None
        except SenderClosedError:
            raise SenderClosedError(f"the sender was closed before {name} was acknowledged") from None
        finally:
            if parcel is not None:
                self._answers.pop(parcel.seq, None)
            self._room_freed.set()

    async def drain(self, deadline_s: float) -> list[str]:
        """Wait until everything that was given to :meth:`send` is answered; what is not by then, by id."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                while self._outbox and not self._closed:
                    self._room_freed.clear()
                    await self._room_freed.wait()
        return self._outbox.unacknowledged_ids

    def statistics(self) -> SenderStatistics:
        outbox = self._outbox
        return SenderStatistics(outbox.epoch, outbox.sent_messages, len(outbox), outbox.bytes)

    async def _add(self, trajectory: Trajectory, deadline: float) -> PendingTrajectory:
        """Raises TimeoutError at ``deadline``, which is looked at only where it has to wait."""
        ticket = trajectory.request
        if not self._waiting and (parcel := self._add_now(ticket, codec.encode_trajectory(trajectory))) is not None:
            return parcel
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._room_lock:
                frames = codec.encode_trajectory(
                    trajectory
                )  # of several segments a copy, and one such is beyond the budget
                while (parcel := self._add_now(ticket, frames)) is None:
                    self._room_freed.clear()
                    await self._room_freed.wait()
                return parcel
        finally:
            self._waiting -= 1

    def _add_now(self, ticket: RolloutRequest, frames: Sequence[codec.Frame]) -> PendingTrajectory | None:
        """None where there is no room.  Raises SenderClosed."""
        if self._closed:
            raise SenderClosedError
        full = self._outbox and self._outbox.bytes + codec.payload_size(frames) > self._budget_bytes
        return None if full else self._outbox.add(ticket, frames)

    async def _write(self) -> None:
        """The only task that sends, so that what a ping says is true."""
        due = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            self._work.clear()
            if clock() >= due:
                due = clock() + self._heartbeat_s
                await self._wire.send([encode_message(self._outbox.heartbeat_message())])
            epoch = self._outbox.epoch
            if await self._send_burst():
                await asyncio.sleep(0)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._work.wait()
            if self._outbox.epoch != epoch:
                due = 0.0

    async def _send_burst(self) -> bool:
        """Send what credit covers, up to ``_BURST`` parcels; whether there was any."""
        parcels = list(islice(iter(self._outbox.next_to_send, None), _BURST))
        epoch = self._outbox.epoch
        await self._wire.send(*([encode_message(StreamData(epoch, parcel.seq)), *parcel.frames] for parcel in parcels))
        return bool(parcels)

    async def _read(self) -> None:
        while True:
            for frames in await self._wire.receive():
                try:
                    answers = self._outbox.handle_message(decode_message(frames[0]))
                except (StreamMessageError, ValueError):
                    continue  # no receiver of ours says that
                for answered in answers:
                    self._settle(answered)
            self._work.set()
            self._room_freed.set()
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        connections = ConnectionTracker()
        while True:
            for event, value in await self._monitor.receive():
                ended = connections.handle_event(event, value)
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._connection_trouble = ""
                elif ended is not None and ended.failure is not None:
                    self._connection_trouble = ended.failure.detail

    def _settle(self, answered: PendingTrajectoryAnswer) -> None:
        parcel, answer = answered
        if self._acknowledged is not None and not isinstance(answer, MessageRefusedError):
            self._acknowledged(parcel.request, answer)
        future = self._answers.get(parcel.seq)
        if future is None or future.done():
            return
        if isinstance(answer, MessageRefusedError):
            future.set_exception(MessageRefusedError(answer.reason, answer.detail))
        else:
            future.set_result(answer)


def _expire(answer: asyncio.Future[AppendOutcome]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError)
