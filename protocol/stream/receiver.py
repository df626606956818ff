"""The receiving end, in the buffer: the socket, the tasks and the appends around a message handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, cast

import zmq
from zmq.auth.thread import ThreadAuthenticator

from protocol.errors import InfraError
from protocol.journal import AppendOutcome
from protocol.stream.connections import LISTENING_EVENTS, ConnectionTracker
from protocol.stream.inbox import StreamInbox, StreamRefusal
from protocol.stream.keys import UNIX_SCHEME, CurveAllowlist, CurveServer, require_guard
from protocol.stream.message_handler import FindFault, PendingAppend, ReceivedTrajectory, StreamMessageHandler
from protocol.stream.messages import RefusalReason
from protocol.stream.notices import OnDisconnected, OnRefused, OnUnroutable, PeerNotices
from protocol.stream.zmq_sockets import UNLIMITED, AsyncSocket, SocketMonitor, enable_heartbeats

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
DEFAULT_BATCH_BYTES = 8 * 1024 * 1024
_WINDOW_BYTES, _ALL_WINDOWS_BYTES = 32 * 1024 * 1024, 256 * 1024 * 1024
RETRY_S = 1.0
"""Seconds before a batch that could not be appended is tried again."""
_APPENDS = 2
"""Concurrent appends: while one is written, the next is prepared."""
_BURST = 8
"""Messages received before other tasks of the event loop, such as the acknowledging one, run."""
_SEND_HIGH_WATER = 1024
"""Answers that may wait inside ZeroMQ per sender."""


AppendTrajectories: TypeAlias = Callable[[Sequence[ReceivedTrajectory]], Awaitable[Sequence[AppendOutcome]]]


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    senders: int
    pending_bytes: int
    """Bytes of trajectories that have arrived and are not yet appended."""
    received: int
    acknowledged: int
    refused: dict[RefusalReason, int]
    """All refusals by reason, including those that were not reported."""
    unroutable: int
    """Answers that found no connection; the sender asks again."""


class TrajectoryReceiver:
    """Receives the trajectories of one run from any number of senders.  ``async with`` owns its tasks.

    ``append`` gets the trajectories that arrived since its last call, up to ``batch_bytes`` but at least one, and
    returns when they are durable; a second batch may be appended meanwhile.  When it raises InfraError (for example on
    a full disk), nothing is acknowledged and the same batch is retried every second.

    Trajectories that are not yet appended take at most ``window_bytes`` per sender.  The n-th sender gets a window of
    256 MiB ÷ n (at least one trajectory); windows granted earlier are not reduced, only not renewed until they are
    within their share.  Raises UserError for TCP without keys, and for a ``unix_socket`` in a folder of others.

    Messages above the limit or the credit are refused when they are read.  What ZeroMQ holds until then is not bounded
    but for the size of single frames: a peer that never sends a last frame, or sends faster than this process reads,
    can exhaust its memory.  Only admitted peers can do so.

    ``find_fault`` returns why the run cannot use a trajectory, None if it can; such a one is refused.
    ``on_refused``, ``on_unroutable`` and ``on_disconnected`` are called at a bounded rate, however often a peer fails.
    """

    def __init__(
        self,
        run_id: str,
        append: AppendTrajectories,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        unix_socket: Path | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        window_bytes: int | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        find_fault: FindFault | None = None,
        on_refused: OnRefused | None = None,
        on_unroutable: OnUnroutable | None = None,
        on_disconnected: OnDisconnected | None = None,
        curve: CurveServer | None = None,
    ) -> None:
        """Listen on ``unix_socket`` if there is one, else on ``host`` and ``port``, 0 for a free one."""
        self.run_id, self.host, self.port, self.max_bytes = run_id, host, port, max_bytes
        self._unix_socket = unix_socket
        require_guard(self.endpoint, curve)
        self.window_bytes = max(max_bytes, _WINDOW_BYTES if window_bytes is None else window_bytes)
        """Bytes that one sender may have unanswered."""
        self._append, self._curve = append, curve
        self._notices = PeerNotices(
            time.monotonic, on_refused=on_refused, on_unroutable=on_unroutable, on_disconnected=on_disconnected
        )
        inbox = StreamInbox(run_id, self.window_bytes, max_bytes, _ALL_WINDOWS_BYTES)
        self._handler = StreamMessageHandler(
            inbox, self._send, self._notices, batch_bytes=batch_bytes, find_fault=find_fault
        )
        self._arrived = asyncio.Event()
        self._append_slots = asyncio.Semaphore(_APPENDS)

    @property
    def endpoint(self) -> str:
        if self._unix_socket is not None:
            return f"{UNIX_SCHEME}{self._unix_socket}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Raises InfraError if the port cannot be bound, or the process may open no more sockets."""
        self._context = zmq.Context[zmq.Socket[bytes]]()
        self._authenticator: ThreadAuthenticator | None = None
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
        socket.rcvhwm, socket.sndhwm = UNLIMITED, _SEND_HIGH_WATER
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, 2 * self.max_bytes + 65536)
        socket.setsockopt(zmq.IPV6, int(":" in self.host))
        enable_heartbeats(socket)
        if self._curve is not None:
            # pyzmq's authenticator for asyncio leaves a reader behind that removes one of the next receiver.
            self._authenticator = ThreadAuthenticator(self._context)
            refuse = partial(asyncio.get_running_loop().call_soon_threadsafe, self._refuse_key)
            self._authenticator.configure_curve_callback("*", CurveAllowlist(self._curve.clients, refuse))
            self._authenticator.start()
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = self._curve.public, self._curve.secret
        socket.bind(self.endpoint)
        if self._unix_socket is None:
            self.port = int(cast("bytes", socket.last_endpoint).rpartition(b":")[2])
        return socket

    def _close_context(self) -> None:
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=0)

    def statistics(self) -> ReceiverStatistics:
        """Return counters since the start."""
        handler, notices = self._handler, self._notices
        return ReceiverStatistics(
            len(handler.inbox.peers),
            handler.waiting_bytes,
            handler.received,
            handler.acknowledged,
            dict(notices.refused),
            notices.unroutable,
        )

    def _send(self, identity: bytes, message: bytes) -> bool:
        return self._wire.send_now([identity, message])

    async def _receive(self) -> None:
        now, handler = asyncio.get_running_loop().time, self._handler
        while True:
            for identity, *frames in await self._wire.receive(_BURST):
                handler.handle_message(bytes(identity), frames, now())
            if handler.waiting:
                self._arrived.set()
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        """Report peers that ZeroMQ rejects or loses."""
        connections = ConnectionTracker()
        while True:
            for event, value in await self._monitor.receive():
                if (ended := connections.handle_event(event, value)) is None:
                    continue
                if ended.failure is not None:
                    self._notices.report_refused(ended.failure, ended.peer)
                else:
                    self._notices.report_disconnected(ended.peer)

    async def _store(self) -> None:
        async with asyncio.TaskGroup() as appends:
            while True:
                await self._append_slots.acquire()
                while not self._handler.waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                appends.create_task(self._append_batch(self._handler.take_batch()))

    async def _append_batch(self, batch: Sequence[PendingAppend]) -> None:
        outcomes = await self._append_until_stored([pending.item for pending in batch])
        self._append_slots.release()
        self._handler.acknowledge(batch, outcomes)

    async def _append_until_stored(self, items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        while True:
            try:
                return await self._append(items)
            except InfraError:
                await asyncio.sleep(RETRY_S)

    def _refuse_key(self, key: bytes) -> None:
        refused = StreamRefusal(RefusalReason.UNAUTHENTICATED, "its public key is not admitted")
        self._notices.report_refused(refused, key.decode("ascii", "replace"))
