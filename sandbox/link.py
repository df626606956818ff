"""The line to one container's PID 1: requests, their answers, and why it went dead.

Messages are handled in the order in which PID 1 spoke, without an await in between.  When the attach stream ends, every
waiter is woken with the cause: the agent's own doing, or infrastructure.  A stream that broke while its container goes
on (a restarted daemon, a restarted server) is opened again by :meth:`Link.reattach`; what was under way is known to PID
1 and told to the new stream.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sandbox import wire
from sandbox.attach import Attachment, attach
from sandbox.engine import REATTACH_SIGNAL, DockerEngine, EngineError, retried
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxVanished

ANSWER_S = 60.0
"""PID 1 answers in milliseconds; a host that needs longer than this is not healthy."""
REATTACH_S = 60.0
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
        self._requests = 0  # the last one's number
        self._answers: dict[int, asyncio.Future[wire.Ack | wire.FileData]] = {}
        self._events: set[asyncio.Event] = set()
        self.greeted, self._ended = asyncio.Event(), asyncio.Event()
        self._gone = _Gone()
        self.remaining_s = 0.0
        """Of the container's life, at PID 1's last answer to an extension."""

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def handle(self, message: wire.Message) -> None:
        """Of a subclass: a message that answers no request."""
        raise NotImplementedError

    def number_requests_from(self, first: int) -> None:
        self._requests = first

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def send(self, frame: bytes) -> None:
        if self._attachment is not None:
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

    async def _attach(self, marker: bytes) -> Attachment:
        ended, gone = self._ended, self._gone
        return await attach(
            self.engine.url, self.container, self._on_message, partial(self._on_lost, ended, gone), marker=marker
        )

    async def reattach(self) -> None:
        """A new stream to the same PID 1, which goes on as it was.  Commands whose end was told to the old stream
        only are told again; their output in between is not.

        Raises SandboxLost or SandboxDestroyed.
        """
        if self._attachment is not None:
            self._attachment.close()
        if self._gone.asked or self._gone.bye is not None or self._gone.destroyed is not None:
            raise await self.why_gone()
        self._ended, self._gone, nonce = asyncio.Event(), _Gone(), secrets.token_bytes(wire.NONCE_BYTES)
        self.greeted.clear()
        try:
            async with asyncio.timeout(REATTACH_S):
                await self._find(wire.sync_marker(nonce))
                while not await self._synced(nonce):
                    continue
        except (TimeoutError, EngineError) as error:
            self._gone.error = error
            self._ended.set()
            raise SandboxLost(f"could not attach again to {self.container[:12]}: {error or 'no answer'}") from error

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

    async def _synced(self, nonce: bytes) -> bool:
        request = self.request(partial(wire.sync, nonce=nonce))
        try:
            self._set_remaining(await self.answered(request, _SYNC_S))
        except TimeoutError:
            return False
        return True

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

    def _on_message(self, message: wire.Message) -> None:
        match message:
            case wire.Ack() | wire.FileData():
                future = self._answers.get(message.request)
                if future is not None and not future.done():
                    future.set_result(message)
                elif isinstance(message, wire.Ack) and message.value:
                    self._set_remaining(message)
            case wire.Hello(protocol):
                if protocol != wire.PROTOCOL:
                    raise wire.WireError(f"PID 1 speaks protocol {protocol}, this is {wire.PROTOCOL}")
                self.greeted.set()
            case wire.Bye():
                self._gone.bye = message.why
            case _:
                self.handle(message)

    def _set_remaining(self, ack: wire.Ack) -> None:
        self.remaining_s = ack.value / 1000

    def _on_lost(self, ended: asyncio.Event, gone: _Gone, error: Exception | None) -> None:
        if ended is not self._ended:  # the stream before this one
            return
        gone.error = gone.error or error
        ended.set()
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
