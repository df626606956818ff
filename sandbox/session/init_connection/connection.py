"""The connection to one container's PID 1: requests, their answers, and the reason when the connection ends.

Messages are handled in PID 1's order, without an await in between. When the attach stream ends, every waiter is woken
with the cause: an action of the agent, or infrastructure. If the stream broke while the container is still running,
another stream follows (:mod:`sandbox.session.init_connection.resumable_stream`): automatically and unnoticed by waiters
(:meth:`InitConnection.resume`), or on request (:meth:`InitConnection.reattach`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from sandbox.docker.container_end import ContainerEndCause
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.docker.stream import StreamProtocolError
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxVanished
from sandbox.session.init_connection import init_requests
from sandbox.session.init_connection.init_messages import (
    ByeReason,
    ChildExit,
    ChildOutput,
    CommandStatus,
    FileData,
    InitAck,
    InitBye,
    InitHello,
    InitMessage,
    ProcessDied,
    SlotMessage,
    SlotOutput,
    SlotState,
    StreamResumed,
)
from sandbox.session.init_connection.init_requests import FileFlag
from sandbox.session.init_connection.resumable_stream import ResumableStream

ANSWER_S = 60.0
"""Maximum seconds for an answer. PID 1 answers in milliseconds; a host that takes longer than this is not healthy."""
REATTACH_S = 60.0


@dataclass(slots=True)
class _StreamEnd:
    """The end of the attach stream and its cause."""

    error: Exception | None = None
    bye: ByeReason | None = None
    closing: bool = False
    destroyed: SandboxDestroyed | None = None
    death: ContainerEndCause | None = None
    """The container's death as the daemon saw it, kept because the daemon soon forgets it."""


class ChildProcessListener(Protocol):
    """Receives the messages about PID 1's child process."""

    def on_message(self, message: ChildOutput | ChildExit) -> None: ...


class InitConnection:
    """The connection to PID 1 of ``container``.

    A subclass handles, in :meth:`handle`, the messages about shells and terminals.
    """

    def __init__(self, engine: DockerEngine, container: str, key: bytes) -> None:
        self.engine, self.container = engine, container
        self._created_at = time.time()
        self.stream = ResumableStream(engine, container, key, self.on_message, self.on_break)
        self._requests = 0  # id of the last one
        self._answers: dict[int, asyncio.Future[InitAck | FileData]] = {}
        self._events: set[asyncio.Event] = set()
        self._ended = asyncio.Event()
        self._end_cause = _StreamEnd()
        self._broke_at = float("-inf")
        """Time on the monotonic clock at which a stream last broke."""
        self._child_listener: ChildProcessListener | None = None
        self.on_stream_broken: Callable[[], None] | None = None
        """Called when a stream breaks that :meth:`resume` may replace; waiters keep waiting. With None, a broken stream
        ends the connection."""
        self.on_ended: Callable[[], None] | None = None
        """Called when the connection has ended, so that :meth:`end_reason` can be asked while the daemon remembers."""
        self.remaining_s = 0.0
        """Seconds that the container had left to live at PID 1's last answer to an extension."""

    @property
    def alive(self) -> bool:
        """True while the connection works."""
        return not self._ended.is_set()

    @property
    def hello_received(self) -> asyncio.Event:
        """Set once PID 1 has sent its first message."""
        return self.stream.hello_received

    def handle(self, message: SlotMessage) -> None:
        """Handle a message about a shell or a terminal; subclasses implement this."""
        raise NotImplementedError

    def on_requests_lost(self, after: int, up_to: int) -> None:
        """Called with the range of request ids, ``after`` (exclusive) to ``up_to``, that never reached PID 1;
        subclasses implement this."""
        raise NotImplementedError

    def number_requests_from(self, first: int) -> None:
        """Make the next request's id the one after ``first``."""
        self._requests = first

    def next_request(self) -> int:
        """Return the id for a new request."""
        self._requests += 1
        return self._requests

    def send(self, frame: bytes) -> None:
        """Send a frame to PID 1 exactly once, even across a broken stream. Does nothing after the connection has
        ended."""
        if self.alive:
            self.stream.send(frame)

    def request(self, make: Callable[[int], bytes]) -> int:
        """Send a frame; await its answer with :meth:`wait_acknowledged`. Returns the request's id."""
        number = self.next_request()
        frame = make(number)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.send(frame)
        return number

    def request_with_callback(self, make: Callable[[int], bytes], then: Callable[[], None]) -> None:
        """Send a frame; ``then`` is called after its answer, or once there can be none."""

        number = self.request(make)
        self._answers[number].add_done_callback(lambda _: (self._answers.pop(number, None), then()))

    @contextlib.contextmanager
    def request_expecting_refusal(self, make: Callable[[int], bytes], refused: Callable[[int], None]) -> Generator[int]:
        """Send a frame that PID 1 acknowledges only if it refuses it; then ``refused`` gets the errno."""
        number = self.request(make)

        def acknowledged(answer: asyncio.Future[InitAck | FileData]) -> None:
            if answer.exception() is None:
                refused(answer.result().error)

        self._answers[number].add_done_callback(acknowledged)
        try:
            yield number
        finally:
            self._answers.pop(number, None)

    async def wait_acknowledged(self, request: int, timeout_s: float = ANSWER_S) -> InitAck:
        """Wait for the acknowledgement of a request. Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        answer = await self._answer(request, timeout_s)
        if isinstance(answer, FileData):
            raise StreamProtocolError(f"request {request} was answered with a file")
        return answer

    async def read_piece(self, path: str, offset: int, most: int, flags: FileFlag = FileFlag.NONE) -> FileData:
        """Read a piece of a file. Raises as :meth:`wait_acknowledged`, and ValueError for an invalid path."""
        request = self.request(lambda n: init_requests.read_frame(n, path, offset, most, flags))
        answer = await self._answer(request, ANSWER_S)
        if isinstance(answer, InitAck):  # no room for it in PID 1's queue
            return FileData(request, answer.error, 0, b"")
        return answer

    async def _answer(self, request: int, timeout_s: float) -> InitAck | FileData:
        future = self._answers.setdefault(request, asyncio.get_running_loop().create_future())
        try:
            if not self.alive and not future.done():
                raise await self.end_reason()
            async with asyncio.timeout(timeout_s):
                return await future
        except _StreamEndedError:
            raise await self.end_reason() from None
        finally:
            self._answers.pop(request, None)

    async def wait_for_event(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait for an event that a message sets. Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        self._events.add(event)
        try:
            if self.alive and not event.is_set():
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            if not event.is_set() or not self.alive:
                raise await self.end_reason()
        finally:
            self._events.discard(event)

    def set_child_listener(self, listener: ChildProcessListener | None) -> None:
        """Set the receiver of the child process's messages. Raises OSError (EBUSY) while there is another child."""
        if listener is not None and self._child_listener is not None:
            raise OSError(errno.EBUSY, "the sandbox is running its tests or packing files: wait until that has ended")
        self._child_listener = listener

    async def open(self) -> None:
        """Attach before the container starts. Raises DockerEngineError."""
        await self.stream.open()

    async def resume(self) -> None:
        """Replace a broken stream. Waiters notice only the delay, or get the reason why the container has ended."""
        with contextlib.suppress(SandboxLost, SandboxDestroyed):
            await self._follow()

    def give_up(self, why: str) -> None:
        """End the connection instead of resuming it; waiters get SandboxLost."""
        self._end(ConnectionAbortedError(why))

    async def reattach(self) -> None:
        """Open a new stream to the same PID 1, whose processes go on.

        For a connection that was reported as lost, or for a new one. Raises SandboxLost or SandboxDestroyed.
        """
        self.close_stream()
        if self._end_cause.closing or self._end_cause.bye is not None or self._end_cause.destroyed is not None:
            raise await self.end_reason()
        last_request = self._requests
        self._ended, self._end_cause = asyncio.Event(), _StreamEnd()
        self.stream.forget_sent()  # nothing waits for the requests in flight
        self.on_requests_lost(await self._follow(), last_request)

    async def _follow(self) -> int:
        """Return the last request that PID 1 has received. Raises SandboxLost or SandboxDestroyed; then the connection
        has ended."""
        try:
            async with asyncio.timeout(REATTACH_S):
                return await self.stream.reconnect(self._requests)
        except DockerEngineError as error:
            self._end()
            raise await self.end_reason() from error
        except TimeoutError as error:
            self.give_up(f"PID 1 did not answer on a new one within {REATTACH_S:.0f} s")
            raise await self.end_reason() from error
        except BaseException:
            self.give_up("the reattaching task was cancelled")
            raise

    def mark_closing(self) -> bool:
        """Record that the session is being closed, so that the end of the stream is expected. Returns True for the
        first call."""
        first, self._end_cause.closing = not self._end_cause.closing, True
        return first

    def mark_destroyed(self, why: SandboxDestroyed) -> None:
        """Record that the agent ended its container, so that waiters get ``why``."""
        self._end_cause.destroyed = self._end_cause.destroyed or why

    async def stream_ended(self) -> None:
        """Wait until the connection has ended."""
        await self._ended.wait()

    def close_stream(self) -> None:
        """Close the stream."""
        self.stream.close()

    def on_message(self, message: InitMessage) -> None:
        """Handle a message that the stream delivers."""
        match message:
            case InitAck() | FileData():
                future = self._answers.get(message.request)
                if future is not None and not future.done():
                    future.set_result(message)
                elif isinstance(message, InitAck) and message.value:
                    self.remaining_s = message.value / 1000
            case InitHello():
                return
            case InitBye():
                self._end_cause.bye = message.why
            case ChildOutput() | ChildExit():
                if self._child_listener is not None:
                    self._child_listener.on_message(message)
            case SlotOutput() | CommandStatus() | ProcessDied() | SlotState():
                self.handle(message)
            case StreamResumed():
                raise StreamProtocolError("the stream handles StreamResumed itself")

    def on_break(self, error: Exception | None) -> None:
        """Handle the end of the stream; ``error`` is what broke it."""
        end, self._broke_at = self._end_cause, time.monotonic()
        if self.on_stream_broken is not None and not (end.closing or end.bye is not None or end.destroyed is not None):
            self.on_stream_broken()
        elif self.alive:
            self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        """End the connection and wake all waiters."""
        self._end_cause.error = self._end_cause.error or error
        self._ended.set()
        for event in self._events:
            event.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(_StreamEndedError())
                future.exception()  # mark as retrieved: a waiter gets it, but there need not be one
        if self.on_ended is not None:
            self.on_ended()

    async def timeout_reason(self, request: str) -> SandboxLost:
        """Return why PID 1 has not answered ``request`` in time: a failure of the daemon, or an unknown reason.

        A request that waits for a new stream has less time for its answer."""
        try:
            await self.engine.require_running(self.container)
        except DockerEngineError as error:
            return SandboxLost(f"PID 1 did not answer {request}: {error}")
        if time.monotonic() - self._broke_at < REATTACH_S + ANSWER_S:
            return SandboxLost(f"PID 1 did not answer {request}: its stream through the Docker daemon broke meanwhile")
        return SandboxVanished(f"PID 1 did not answer {request}, although the Docker daemon works")

    async def end_reason(self) -> SandboxLost | SandboxDestroyed:
        """Return why the connection has ended."""
        end = self._end_cause
        if end.destroyed is not None:
            return end.destroyed.with_traceback(None)  # the traceback of an earlier waiter
        if end.closing:
            return SandboxLost("the session was closed")
        if end.bye is ByeReason.DEADLINE:
            return SandboxLost("the container reached its deadline: it was not extended, or lived for its maximum")
        if end.bye is not None or end.error is not None:
            return SandboxLost(f"the attach stream broke: {end.error or end.bye}")
        if end.death is not None:
            return _loss_by_cause(end.death)
        try:
            cause = await self.engine.ending_cause(self.container, self._created_at)
        except DockerEngineError as error:
            return SandboxLost(f"the Docker daemon does not answer: {error}")
        if cause.death_seen:
            end.death = cause
        return _loss_by_cause(cause)


def _loss_by_cause(cause: ContainerEndCause) -> SandboxLost | SandboxDestroyed:
    """Return the loss of a container whose PID 1 ended without a message."""
    if cause.out_of_memory and not cause.killed_by_api:
        return SandboxDestroyed("the agent used up the container's memory, and PID 1 was killed for it")
    if cause.killed_by_api:
        return SandboxLost("the container was killed from outside, through the Docker daemon")
    if cause.daemon_may_have_restarted:
        return SandboxLost("the Docker daemon does not know how the container ended: it was restarted or forgot it")
    return SandboxVanished("the container ended, and neither PID 1 nor the daemon reports why")


class _StreamEndedError(Exception):
    """The attach stream ended under a waiter."""
