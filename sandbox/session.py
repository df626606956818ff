"""One sandbox's life: create, attach, start, files in, commands, close.

Three calls to the daemon make a session (create, attach, start) and none ends it: closing asks PID 1 to leave, and the
daemon removes what has ended.  Everything between goes over PID 1's attach stream.  PID 1 leaves by itself at its
deadline; ``extend`` moves that, up to the session's maximum.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from protocol.errors import InfraError
from sandbox import wire
from sandbox.attach import Attachment, attach
from sandbox.engine import ContainerSpec, DockerEngine, EngineError
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, SandboxVanished
from sandbox.shell import CommandResult, Shell

HELLO_S = 60.0
ANSWER_S = 60.0
CLOSE_S = 20.0


class GradeListener(Protocol):
    """Takes the grade child's messages."""

    def on_message(self, message: wire.GradeOutput | wire.GradeExit) -> None: ...


@dataclass(frozen=True, slots=True)
class SessionLimits:
    first_deadline_s: float = 60.0
    """How long the container lives when nobody extends it."""
    max_s: float = 3600.0
    """How long it lives at most."""


@dataclass(slots=True)
class _Gone:
    """How the attach stream ended."""

    error: Exception | None = None
    bye: wire.ByeReason | None = None
    asked: bool = field(default=False)


class SandboxSession:
    """Made by :meth:`start`; ended by :meth:`close`, which never raises."""

    def __init__(self, engine: DockerEngine, container: str) -> None:
        self._engine, self.container = engine, container
        self._created_at = time.time()
        self._attachment: Attachment | None = None
        self._requests = 0
        self._acks: dict[int, asyncio.Future[wire.Ack]] = {}
        self._events: set[asyncio.Event] = set()
        self._hello, self._ended = asyncio.Event(), asyncio.Event()
        self._gone = _Gone()
        self._grade: GradeListener | None = None
        self.shell = Shell(self)
        self.remaining_s = 0.0
        """Of the container's life, at PID 1's last answer to an extension."""
        self.spec: ContainerSpec | None = None
        """How the container was made; None for one that was there."""

    @property
    def engine(self) -> DockerEngine:
        return self._engine

    @classmethod
    async def start(
        cls, engine: DockerEngine, spec: ContainerSpec, workdir: str, limits: SessionLimits
    ) -> SandboxSession:
        """A running container whose shell stands in ``workdir``.  Raises SandboxStartError; leaves nothing behind."""
        first, most = round(limits.first_deadline_s * 1000), round(limits.max_s * 1000)
        spec = replace(spec, command=("/.sbx/init", str(first), str(most), workdir))
        try:
            container = await _create(engine, spec)
        except EngineError as error:
            raise SandboxStartError(str(error)) from error
        session = cls(engine, container)
        session.spec = spec
        try:
            session._attachment = await attach(engine.url, container, session._on_message, session._on_lost)
            await engine.start(container)
            await session.arrived(session._hello, HELLO_S)
        except BaseException as error:
            await session._abandon()
            if isinstance(error, (EngineError, SandboxDestroyed, SandboxLost, TimeoutError)):
                raise SandboxStartError(f"sandbox did not start: {error or 'PID 1 is silent'}") from error
            raise
        session.shell.cwd = workdir
        return session

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """See :meth:`sandbox.shell.Shell.run`."""
        return await self.shell.run(command, timeout_s, on_output)

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        """Bring files in, with the folders above them.  Raises OSError with the container's errno."""
        requests = [(path, self.put(path, data, mode=mode)) for path, data in files.items()]
        for path, sent in requests:
            for request in sent:
                ack = await self.answered(request, ANSWER_S)
                if ack.error:
                    raise OSError(ack.error, os.strerror(ack.error), path)

    def put(
        self, path: str, data: bytes, *, mode: int = 0o644, flags: wire.WriteFlag = wire.WriteFlag.NONE
    ) -> list[int]:
        """Send one file without waiting.  Returns the requests to await with :meth:`answered`."""
        requests: list[int] = []
        for at in range(0, max(len(data), 1), wire.FILE_CHUNK_BYTES):
            chunk = data[at : at + wire.FILE_CHUNK_BYTES]
            how = flags if at == 0 else wire.WriteFlag.APPEND
            requests.append(self.request(lambda n, c=chunk, h=how: wire.write(n, path, c, mode=mode, flags=h)))
        return requests

    async def setup(self, files: Mapping[str, bytes], script: str, timeout_s: float) -> None:
        """What a task needs before its agent: files, then a script in a subshell.  Raises SandboxStartError."""
        try:
            await self.write_files(files)
            if not script.strip():
                return
            done = await self.run(f"(eval {shlex.quote(script)})", timeout_s)
        except (OSError, TimeoutError, SandboxDestroyed, SandboxLost) as error:
            raise SandboxStartError(f"the task's setup failed: {error}") from error
        if done.exit_code != 0:
            how = "ran out of time" if done.timed_out else f"exited {done.exit_code}"
            raise SandboxStartError(f"the task's setup {how}: {done.output[-500:]!r}")

    def extend(self, seconds: float) -> None:
        """Let the container live for ``seconds`` from now, or to its maximum.  Does not wait: PID 1's answer moves
        ``remaining_s``."""
        if self.alive:
            self.send(wire.extend(self.next_request(), round(seconds * 1000)))

    def grading(self, listener: GradeListener | None) -> None:
        """Who gets the grade child's messages."""
        self._grade = listener

    async def close(self) -> None:
        """End the container.  The request leaves before the first await, so that a cancelled close still closes."""
        if self._gone.asked:
            return
        self._gone.asked = True
        self.send(wire.quit_(self.next_request()))
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._ended.wait()
        except TimeoutError:
            await self._abandon()
        finally:
            if self._attachment is not None:
                self._attachment.close()

    async def _abandon(self) -> None:
        """Remove by force.  A daemon that does not answer leaves the container to its own deadline."""
        self._gone.asked = True
        if self._attachment is not None:
            self._attachment.close()
        try:
            await asyncio.shield(self._engine.remove(self.container))
        except InfraError:
            return

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def send(self, frame: bytes) -> None:
        if self._attachment is not None:
            self._attachment.write(frame)

    def request(self, make: Callable[[int], bytes]) -> int:
        """Send a frame whose acknowledgement will be awaited with :meth:`answered`."""
        number = self.next_request()
        self._acks[number] = asyncio.get_running_loop().create_future()
        self.send(make(number))
        return number

    async def answered(self, request: int, timeout_s: float) -> wire.Ack:
        future = self._acks.setdefault(request, asyncio.get_running_loop().create_future())
        try:
            if not self.alive and not future.done():
                raise await self._why_gone()
            async with asyncio.timeout(timeout_s):
                return await future
        except _StreamEndedError:
            raise await self._why_gone() from None
        finally:
            self._acks.pop(request, None)

    async def arrived(self, event: asyncio.Event, timeout_s: float) -> None:
        self._events.add(event)
        try:
            if self.alive:
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            if not event.is_set() or not self.alive:
                raise await self._why_gone()
        finally:
            self._events.discard(event)

    def _on_message(self, message: wire.Message) -> None:
        match message:
            case wire.Output() | wire.Status() | wire.ShellDied():
                self.shell.on_message(message)
            case wire.GradeOutput() | wire.GradeExit():
                if self._grade is not None:
                    self._grade.on_message(message)
            case wire.Ack():
                future = self._acks.get(message.request)
                if future is None:
                    if message.value:
                        self.remaining_s = message.value / 1000
                elif not future.done():
                    future.set_result(message)
            case wire.Hello(protocol):
                if protocol != wire.PROTOCOL:
                    raise wire.WireError(f"PID 1 speaks protocol {protocol}, this is {wire.PROTOCOL}")
                self._hello.set()
            case wire.Bye():
                self._gone.bye = message.why

    def _on_lost(self, error: Exception | None) -> None:
        self._gone.error = error
        self._ended.set()
        for event in self._events:
            event.set()
        for future in self._acks.values():
            if not future.done():
                future.set_exception(_StreamEndedError())
                future.exception()  # seen: whoever waits gets it, and nobody has to

    async def _why_gone(self) -> Exception:
        if self._gone.asked:
            return SandboxLost("the session was closed")
        if self._gone.bye is wire.ByeReason.DEADLINE:
            return SandboxLost("the container reached its deadline: it was not extended, or lived for its maximum")
        if self._gone.bye is not None or self._gone.error is not None:
            return SandboxLost(f"the attach stream broke: {self._gone.error or self._gone.bye}")
        try:
            cause = await self._engine.ending_cause(self.container, self._created_at)
        except EngineError as error:
            return SandboxLost(f"the Docker daemon does not answer: {error}")
        if cause.out_of_memory and not cause.killed_by_api:
            return SandboxDestroyed("the agent used up the container's memory, and PID 1 was killed for it")
        if cause.killed_by_api:
            return SandboxLost("the container was killed from outside, through the daemon")
        return SandboxVanished("the container ended, and neither PID 1 nor the daemon says why")


class _StreamEndedError(Exception):
    """The attach stream ended under a waiter."""


async def _create(engine: DockerEngine, spec: ContainerSpec) -> str:
    """The daemon finishes a creation that its client has given up, and what never ran has no deadline.  So a cancelled
    creation is seen to its end, which has a deadline of its own, and removed."""
    making = asyncio.ensure_future(engine.create(spec))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(EngineError):
            await engine.remove(await making)
        raise
