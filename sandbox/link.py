"""The line to one container's PID 1: requests, their answers, and why it went dead.

Messages are handled in the order in which PID 1 spoke, without an await in between.  When the attach stream ends, every
waiter is woken with the cause: the agent's own doing, or infrastructure.

A stream that broke while its container goes on, because its daemon was restarted, is followed by another
(:meth:`resume`) on which nothing of either side is missing and nothing comes twice: this side counts the bytes that it
has heard, PID 1 keeps what follows them, and frames that PID 1 did not get are sent again.  Another client's link
(:meth:`reattach` of a new one) is told what each shell does, and nothing of before.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sandbox import wire
from sandbox.attach import Attachment, attach
from sandbox.engine import REATTACH_SIGNAL, DockerEngine, EngineError, retried
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxVanished
from sandbox.outbox import Outbox

ANSWER_S = 60.0
"""PID 1 answers in milliseconds; a host that needs longer than this is not healthy."""
REATTACH_S = 60.0
_HEARD_BYTES = 64 << 10
"""PID 1 is told as often what it need not keep any more; it keeps, and waits for, eight times as much."""
_SYNC_S = 1.0
"""Before the question where the frames begin is asked again: PID 1 may have dropped it with what it was to drop."""


@dataclass(slots=True)
class _Gone:
    """How the attach stream ended."""

    error: Exception | None = None
    bye: wire.ByeReason | None = None
    asked: bool = False
    destroyed: SandboxDestroyed | None = None


class Link:
    """PID 1 of ``container``; :meth:`handle` gets what answers no request."""

    def __init__(self, engine: DockerEngine, container: str) -> None:
        self.engine, self.container = engine, container
        self._created_at = time.time()
        self._attachment: Attachment | None = None
        self._stream = 0
        """The attachment's number: what an earlier one still says is not heard."""
        self._flows = False
        """Frames go out as they come; else they wait for PID 1 to say what it has."""
        self._connecting = self._broken = False
        self._heard, self._told_heard = 0, 0
        self._outbox = Outbox()
        self._requests = self._taken = 0  # the last one's number, and the last that a new stream found taken
        self._answers: dict[int, asyncio.Future[wire.Ack | wire.FileData]] = {}
        self._events: set[asyncio.Event] = set()
        self.greeted, self._ended, self._stream_news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._gone = _Gone()
        self.on_cut: Callable[[], None] | None = None
        """Called when a stream breaks for which :meth:`resume` is worth trying; whoever waits goes on waiting for it.
        None: it is not, and they are told."""
        self.remaining_s = 0.0
        """Of the container's life, at PID 1's last answer to an extension."""

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def handle(self, message: wire.Message) -> None:
        """Of a subclass: a message that answers no request."""
        raise NotImplementedError

    def never_came(self, after: int, up_to: int) -> None:
        """Of a subclass: PID 1 has not got the requests of these numbers, and will not."""
        raise NotImplementedError

    def number_requests_from(self, first: int) -> None:
        self._requests = first

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def send(self, frame: bytes) -> None:
        """To PID 1, once, whatever happens to the stream; to nobody when the link is dead."""
        if self.alive:
            self._outbox.add(frame)
            if self._flows and self._attachment is not None:
                self._attachment.write(frame)

    def request(self, make: Callable[[int], bytes]) -> int:
        """Send a frame whose answer will be awaited with :meth:`answered`."""
        number = self.next_request()
        frame = make(number)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.send(frame)
        return number

    def request_then(self, make: Callable[[int], bytes], then: Callable[[], None]) -> None:
        """Send a frame; ``then`` is called after its answer, or when there will be none."""

        number = self.request(make)
        self._answers[number].add_done_callback(lambda _: (self._answers.pop(number, None), then()))

    async def answered(self, request: int, timeout_s: float = ANSWER_S) -> wire.Ack:
        """The acknowledgement of a request.  Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        answer = await self._answer(request, timeout_s)
        if isinstance(answer, wire.FileData):
            raise wire.WireError(f"request {request} was answered with a file")
        return answer

    async def read_piece(self, path: str, offset: int, most: int) -> wire.FileData:
        """A piece of a file.  Raises what :meth:`answered` does, ValueError for a path that cannot be one."""
        request = self.request(lambda n: wire.read(n, path, offset, most))
        answer = await self._answer(request, ANSWER_S)
        if isinstance(answer, wire.Ack):  # no room for it in PID 1's queue
            return wire.FileData(request, answer.error, 0, b"")
        return answer

    async def _answer(self, request: int, timeout_s: float) -> wire.Ack | wire.FileData:
        future = self._answers.setdefault(request, asyncio.get_running_loop().create_future())
        try:
            if not self.alive and not future.done():
                raise await self.why_gone()
            async with asyncio.timeout(timeout_s):
                return await future
        except _StreamEndedError:
            raise await self.why_gone() from None
        finally:
            self._answers.pop(request, None)

    async def arrived(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait for an event that a message sets.  Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        self._events.add(event)
        try:
            if self.alive and not event.is_set():
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            if not event.is_set() or not self.alive:
                raise await self.why_gone()
        finally:
            self._events.discard(event)

    async def open(self) -> None:
        """Before the container starts.  Raises EngineError."""
        self._attachment = await self._attach(b"")
        self._flows = True

    async def _attach(self, marker: bytes) -> Attachment:
        self._stream, self._broken = self._stream + 1, False
        lost = partial(self._on_lost, self._stream)
        return await attach(self.engine.url, self.container, self._on_message, lost, marker=marker)

    async def resume(self) -> None:
        """A new stream in place of one that broke.  Whoever waits notices nothing but the time, or, where there is no
        container any more, is told why."""
        with contextlib.suppress(SandboxLost, SandboxDestroyed):
            await self._connect(self._heard)

    def give_up(self, why: str) -> None:
        """In place of :meth:`resume`: whoever waits is told that this is lost."""
        self._end(ConnectionAbortedError(why))

    async def reattach(self) -> None:
        """A new stream to the same PID 1, which goes on as it was: of a link whose waiters were told that it is lost,
        or of a new one.  Raises SandboxLost or SandboxDestroyed."""
        if self._attachment is not None:
            self._attachment.close()
        if self._gone.asked or self._gone.bye is not None or self._gone.destroyed is not None:
            raise await self.why_gone()
        is_new, asked = self._attachment is None, self._requests
        self._ended, self._gone = asyncio.Event(), _Gone()
        self._outbox.clear()  # nobody waits for what was under way
        self.never_came(await self._connect(wire.NEW_CLIENT if is_new else self._heard), asked)

    async def _connect(self, heard: int) -> int:
        """The last request that PID 1 has taken.  Raises SandboxLost or SandboxDestroyed; then the link is dead."""
        nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self._connecting, self._broken = True, True
        try:
            async with asyncio.timeout(REATTACH_S):
                while self._broken:
                    self.greeted.clear()
                    await self._find(wire.sync_marker(nonce))
                    await self._synced(nonce, heard)
        except EngineError as error:
            self._end(None if error.status else error)
            raise await self.why_gone() from error
        except TimeoutError as error:
            self._end(TimeoutError(f"PID 1 did not answer a new stream within {REATTACH_S:.0f} s"))
            raise await self.why_gone() from error
        except BaseException:
            self.give_up("whoever attached again was stopped")
            raise
        finally:
            self._connecting = False
        return self._taken

    async def _find(self, marker: bytes) -> None:
        """Attach, as soon as the daemon is back.  Raises EngineError when it says that the container is gone."""
        while True:
            try:
                self._attachment = await self._attach(marker)
                await self._drop_cut_frames()
            except EngineError as error:
                self.close_stream()
                if 400 <= error.status < 500:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    async def _synced(self, nonce: bytes, heard: int) -> None:
        """Ask where the stream begins, until PID 1 has said so or the stream has broken once more."""
        while self._attachment is not None and not (self.greeted.is_set() or self._broken):
            self._stream_news.clear()
            number = self._requests if heard == wire.NEW_CLIENT else 0  # what PID 1 is to count as taken
            self._attachment.write(wire.sync(number, nonce, heard))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_S):
                    await self._stream_news.wait()

    async def _drop_cut_frames(self) -> None:
        """PID 1 drops what it has of a frame that was cut in two when it gets this from outside."""
        docker = self.engine.docker

        async def call() -> None:
            url = f"{docker.docker_host}/containers/{self.container}/kill"
            async with docker.session.post(url, params={"signal": REATTACH_SIGNAL.name}) as response:
                if response.status >= 400:
                    raise EngineError(f"no such running container: {await response.text()}", response.status)

        await retried(f"signal {self.container[:12]}", call, frozenset({500, 503}))

    def asking_to_end(self) -> bool:
        """From here on the stream's end is nobody's fault.  Returns whether this is the first to say so."""
        first, self._gone.asked = not self._gone.asked, True
        return first

    def condemn(self, why: SandboxDestroyed) -> None:
        """From here on the stream's end is the agent's doing."""
        self._gone.destroyed = self._gone.destroyed or why

    async def stream_ended(self) -> None:
        await self._ended.wait()

    def close_stream(self) -> None:
        if self._attachment is not None:
            self._attachment.close()

    def _on_message(self, message: wire.Message, position: int) -> None:
        if isinstance(message, wire.Resumed):
            self._on_resumed(message)
            return
        if position <= self._heard:  # told again because it was asked for twice
            return
        self._heard = position
        if position - self._told_heard >= _HEARD_BYTES and self._attachment is not None:
            self._told_heard = position
            self._attachment.write(wire.heard(position))
        match message:
            case wire.Ack() | wire.FileData():
                self._outbox.came(message.request)
                future = self._answers.get(message.request)
                if future is not None and not future.done():
                    future.set_result(message)
                elif isinstance(message, wire.Ack) and message.value:
                    self._set_remaining(message)
            case wire.Hello(protocol):
                self._greet(protocol)
            case wire.Bye():
                self._gone.bye = message.why
            case _:
                if isinstance(message, wire.Status | wire.Died | wire.GradeExit):
                    self._outbox.came(message.request)
                self.handle(message)

    def _greet(self, protocol: int) -> None:
        if protocol != wire.PROTOCOL:
            raise wire.WireError(f"PID 1 speaks protocol {protocol}, this is {wire.PROTOCOL}")
        self.greeted.set()
        self._stream_news.set()

    def _on_resumed(self, message: wire.Resumed) -> None:
        """Once for each time that it was asked for; the first opens the way for what has waited."""
        if self.greeted.is_set():
            return
        if self._heard and message.position > self._heard:
            raise wire.WireError(f"{message.position - self._heard} bytes of PID 1's are missing")
        self._heard = self._told_heard = max(self._heard, message.position)
        self._greet(message.protocol)
        self._taken = message.last_request
        self._outbox.came(message.last_request)
        for frame in self._outbox:
            if self._attachment is not None:
                self._attachment.write(frame)
        self._flows = True

    def _set_remaining(self, ack: wire.Ack) -> None:
        self.remaining_s = ack.value / 1000

    def _on_lost(self, stream: int, error: Exception | None) -> None:
        if stream != self._stream or not self.alive:
            return
        self._flows, self._broken = False, True
        self._stream_news.set()
        gone = self._gone
        if self._connecting:
            return
        if self.on_cut is not None and not (gone.asked or gone.bye is not None or gone.destroyed is not None):
            self.on_cut()
        else:
            self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        """Whoever waits is told."""
        self._gone.error = self._gone.error or error
        self._ended.set()
        for event in self._events:
            event.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(_StreamEndedError())
                future.exception()  # seen: whoever waits gets it, and nobody has to

    async def why_gone(self) -> SandboxLost | SandboxDestroyed:
        """Why the line is dead."""
        gone = self._gone
        if gone.destroyed is not None:
            return gone.destroyed
        if gone.asked:
            return SandboxLost("the session was closed")
        if gone.bye is wire.ByeReason.DEADLINE:
            return SandboxLost("the container reached its deadline: it was not extended, or lived for its maximum")
        if gone.bye is not None or gone.error is not None:
            return SandboxLost(f"the attach stream broke: {gone.error or gone.bye}")
        try:
            cause = await self.engine.ending_cause(self.container, self._created_at)
        except EngineError as error:
            return SandboxLost(f"the Docker daemon does not answer: {error}")
        if cause.out_of_memory and not cause.killed_by_api:
            return SandboxDestroyed("the agent used up the container's memory, and PID 1 was killed for it")
        if cause.killed_by_api:
            return SandboxLost("the container was killed from outside, through the daemon")
        return SandboxVanished("the container ended, and neither PID 1 nor the daemon says why")


class _StreamEndedError(Exception):
    """The attach stream ended under a waiter."""
