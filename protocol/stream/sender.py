"""The sending end, in a worker: the socket and its tasks around a :class:`~protocol.stream.send_queue.SendQueue`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

import zmq

from protocol.journal import AppendOutcome
from protocol.stream.connections import CONNECTING_EVENTS, ConnectionTracker
from protocol.stream.errors import NotAcknowledgedError, SenderClosedError
from protocol.stream.keys import CurveClient, require_guard
from protocol.stream.messages import StreamBye, StreamData, StreamMessageError, decode_message, encode_message
from protocol.stream.outbox import PendingTrajectory, StreamOutbox
from protocol.stream.send_queue import OnAcknowledged, SendQueue
from protocol.stream.zmq_sockets import UNLIMITED, AsyncSocket, SocketMonitor, enable_heartbeats
from protocol.trajectory import Trajectory

HEARTBEAT_S = 1.0
BUDGET_BYTES = 64 * 1024 * 1024
_SEND_HIGH_WATER = 512
"""Messages that may wait inside ZeroMQ; credit bounds their bytes."""
_BURST = 8
"""Messages sent before other tasks of the event loop run."""
_BYE_MS = 500
"""Milliseconds that the final message has to leave."""


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    epochs: int
    sent: int
    """Number of messages, repetitions included."""
    unacknowledged: int
    bytes: int
    """Bytes of unacknowledged trajectories: at most the budget, or one trajectory."""


class TrajectorySender:
    """Sends the trajectories of one worker.  ``async with`` owns its tasks; ``send`` may be called concurrently.

    ``on_acknowledged`` is called with each acknowledgement, even if no ``send`` waits for it any more.  Raises
    UserError for TCP without keys, and for a Unix socket in a folder of others.
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
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        require_guard(endpoint, curve)
        self.endpoint, self.run_id, self.sender_id = endpoint, run_id, sender_id
        self.unacknowledged: list[str] = []
        """Ids of trajectories that were unacknowledged when the sender was closed."""
        self._heartbeat_s, self._curve = heartbeat_s, curve
        self._outbox = StreamOutbox(run_id, sender_id)
        self._queue = SendQueue(self._outbox, budget_bytes, on_acknowledged)
        self._work = asyncio.Event()
        self._connection_trouble = ""
        """Reason why there is no connection, as far as ZeroMQ reports it."""

    async def __aenter__(self) -> Self:
        self._context = zmq.Context[zmq.Socket[bytes]]()
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.rcvhwm, socket.sndhwm = UNLIMITED, _SEND_HIGH_WATER
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
        self._queue.closed = False
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(each) for each in (self._read(), self._write(), self._watch())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        self.unacknowledged = self._outbox.unacknowledged_ids
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
        """Send ``trajectory`` and return its outcome once it is durable (``unknown``: no group waits for it).

        While the budget is full it waits, in the order of the calls.  If it is cancelled after that, the trajectory
        stays on its way: see :meth:`drain`.  Raises CodecError for a trajectory that frames cannot hold, and
        StreamError: :class:`MessageRefusedError`, :class:`NotAcknowledgedError` after ``deadline_s``,
        :class:`SenderClosedError`.
        """
        name = trajectory.request.trajectory_id
        pending: PendingTrajectory | None = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        try:
            pending = await self._queue.add(trajectory, deadline)
            answer = self._queue.expect_answer(pending)
            expiry = loop.call_at(deadline, _expire, answer)
            self._work.set()
            try:
                return await answer
            finally:
                expiry.cancel()
        except TimeoutError:
            if pending is not None:
                self._outbox.abandon(pending)
            raise NotAcknowledgedError(
                f"no acknowledgement of {name} from {self.endpoint} within {deadline_s:g} s"
                + ("" if self._outbox.welcomed else "; the buffer does not answer")
                + (f" ({self._connection_trouble})" if self._connection_trouble else "")
            ) from None
        except SenderClosedError:
            raise SenderClosedError(f"the sender was closed before {name} was acknowledged") from None
        finally:
            self._queue.end_wait(pending)

    async def drain(self, deadline_s: float) -> list[str]:
        """Wait until everything given to :meth:`send` is answered, at most ``deadline_s``; return the ids of the
        rest."""
        return await self._queue.drain(deadline_s)

    def statistics(self) -> SenderStatistics:
        outbox = self._outbox
        return SenderStatistics(outbox.epoch, outbox.sent_messages, len(outbox), outbox.bytes)

    async def _write(self) -> None:
        """Send data and heartbeats; only this task sends, so that the byte count of a ping is right."""
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
        """Send up to ``_BURST`` trajectories that credit covers; return whether there were any."""
        burst = list(islice(iter(self._outbox.next_to_send, None), _BURST))
        epoch = self._outbox.epoch
        await self._wire.send(*([encode_message(StreamData(epoch, pending.seq)), *pending.frames] for pending in burst))
        return bool(burst)

    async def _read(self) -> None:
        while True:
            for frames in await self._wire.receive():
                try:
                    answered = self._outbox.handle_message(decode_message(frames[0]))
                except (StreamMessageError, ValueError):
                    continue  # not from a receiver of this protocol
                self._queue.settle(answered)
            self._work.set()
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


def _expire(answer: asyncio.Future[AppendOutcome]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError)
