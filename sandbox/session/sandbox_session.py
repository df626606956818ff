"""One sandbox's life: create, attach, start, shells and terminals, files, close.

Three calls to the daemon make a session (create, attach, start).  Closing asks PID 1 to leave, and the daemon removes
what has ended; where containers outlive their daemon (live-restore), the session removes its own.  Everything between
goes over PID 1's attach stream.  PID 1 leaves by itself at its deadline; ``extend`` moves that, up to the session's
maximum.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from protocol.errors import InfraError
from protocol.processes.cancellation import call_with_undo
from sandbox.docker.engine import ContainerSpec, DockerEngine, DockerEngineError
from sandbox.docker.loop_disk import mount_loop_disk
from sandbox.docker.user_files import check_user_files
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, TaskFault
from sandbox.session import connection, files, wire
from sandbox.session.connection import InitConnection
from sandbox.session.init_command import init_command, init_key
from sandbox.session.named_session import NamedSession
from sandbox.session.shell import CommandResult, SandboxShell
from sandbox.session.terminal import PseudoTerminal

HELLO_TIMEOUT_S = 60.0
ANSWER_S = connection.ANSWER_S
CLOSE_TIMEOUT_S = 20.0
_TERMINAL_ENV = {"TERM": "xterm-256color"}


class ChildProcessListener(Protocol):
    """Takes the grade child's messages."""

    def on_message(self, message: wire.GradeOutput | wire.GradeExit) -> None: ...


class NoFreeSlotError(Exception):
    """As many shells and terminals as a session can have are open."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    first_deadline_s: float = 60.0
    """How long the container lives when nobody extends it."""
    max_s: float = 3600.0
    """How long it lives at most."""


class SandboxSession(InitConnection):
    """Made by :meth:`start` or :meth:`adopt`; ended by :meth:`close`, which never raises."""

    def __init__(self, engine: DockerEngine, container: str, key: bytes, workdir: str = "/") -> None:
        """``key``: the container's, for its PID 1 (:mod:`sandbox.session.init_command`)."""
        super().__init__(engine, container, key)
        self.workdir = workdir
        self.spec: ContainerSpec | None = None
        """How the container was made; None where nobody knows."""
        self.verification_network: Callable[[SandboxSession], AbstractAsyncContextManager[Mapping[str, str]]] = (
            _without_network
        )
        """``async with session.verifying(bench) as env``: ``bench``, where this session's tests run, has their network,
        and ``env`` is what programs need for it.  Set by who gives the session a network."""
        self.watch_verifier: Callable[[SandboxSession], AbstractContextManager[object]] = nullcontext
        """``with session.beside(bench)``: who looks after this one looks after ``bench`` too, where its tests run."""
        self._grade: ChildProcessListener | None = None
        self.shell = SandboxShell(self, wire.MAIN_SLOT, workdir)
        """The one that is there from the start."""
        self.named_sessions: dict[str, NamedSession] = {}
        """The sessions that the agent has named."""
        self.terminal: PseudoTerminal | None = None
        """The one that the agent's keystrokes go to."""
        self._slots: dict[int, SandboxShell | PseudoTerminal | None] = {wire.MAIN_SLOT: self.shell}

    @classmethod
    async def start(
        cls, engine: DockerEngine, spec: ContainerSpec, workdir: str, limits: SessionLimits
    ) -> SandboxSession:
        """A running container whose shell stands in ``workdir``.  Raises SandboxStartError; leaves nothing behind."""
        spec = replace(spec, command=init_command(limits.first_deadline_s, limits.max_s, workdir))
        try:
            container = await call_with_undo(lambda: engine.create(spec), engine.remove)
        except DockerEngineError as error:
            raise SandboxStartError(str(error)) from error
        session = cls(engine, container, init_key(spec.command), workdir)
        session.spec = spec
        try:
            if spec.committed_from:
                await check_user_files(engine, container)
            if spec.disk_loop:
                await mount_loop_disk(engine, container, spec.limits.disk_bytes)
            await session.open()
            await engine.start(container)
            await session.wait_for_event(session.greeted, HELLO_TIMEOUT_S)
        except BaseException as error:
            await session._abandon()
            if isinstance(error, (DockerEngineError, SandboxDestroyed, SandboxLost, TimeoutError)):
                raise SandboxStartError(f"sandbox did not start: {error or 'PID 1 is silent'}") from error
            raise
        return session

    @property
    def memory_bytes(self) -> int | None:
        """Of its container; None where nobody knows how it was made."""
        return self.spec.limits.memory_bytes if self.spec is not None else None

    @classmethod
    async def adopt(cls, engine: DockerEngine, container: str, workdir: str = "/") -> SandboxSession:
        """The session of a container that runs already, whoever started it: after a restart of its server, say.  Its
        shells go on; a command whose client is gone is killed.  Raises SandboxLost."""
        try:
            made = (await engine.inspect(container))["Config"]["Cmd"]
        except DockerEngineError as error:
            raise SandboxLost(f"the Docker daemon does not know it: {error}") from error
        session = cls(engine, container, init_key(made or ()), workdir)
        session.number_requests_from(secrets.randbelow(1 << 30) + (1 << 30))  # no late answer to another fits ours
        try:
            await session.reattach()
        except BaseException:
            session.close_stream()
            raise
        return session

    # ---- shells and terminals ----

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """See :meth:`sandbox.session.shell.Shell.run`."""
        return await self.shell.run(command, timeout_s, on_output)

    def open_shell(self) -> SandboxShell:
        """One more shell, in the working directory.  It starts with its first command.  Raises NoFreeSlot."""
        shell = SandboxShell(self, self._free_slot(), self.workdir)
        self._slots[shell.slot] = shell
        return shell

    async def open_terminal(
        self,
        argv: Sequence[str] = ("bash", "--noprofile", "--norc"),
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        spool: wire.Spool | None = None,
    ) -> PseudoTerminal:
        """A process on a terminal of its own, in the working directory.

        Raises ValueError for rows or columns that no terminal has, NoFreeSlot, OSError when the container has no
        process left for it, SandboxLost, SandboxDestroyed.
        """
        terminal = PseudoTerminal(self, self._free_slot(), rows, columns)
        self._slots[terminal.slot] = terminal
        try:
            await terminal.start(cwd or self.workdir, argv, {**_TERMINAL_ENV, **(env or {})}, spool)
        except BaseException:
            self.close_slot(terminal)
            raise
        return terminal

    def close_slot(self, used: SandboxShell | PseudoTerminal) -> None:
        """Kill what runs in a shell or a terminal.  Does not wait: the place is free when PID 1 says so."""
        slot = used.slot
        if self._slots.get(slot) is used:
            self._slots[slot] = None  # what is still told of it is for nobody
            self.request_with_callback(lambda n: wire.close_frame(n, slot), lambda: self._free(slot))

    def _free(self, slot: int) -> None:
        self._slots.pop(slot, None)

    def _free_slot(self) -> int:
        free = next((slot for slot in range(wire.SLOTS) if slot not in self._slots), None)
        if free is None:
            raise NoFreeSlotError(f"{wire.SLOTS} shells and terminals are open")
        return free

    # ---- files ----

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        """Bring files in, with the folders above them.  Raises OSError with the container's errno."""
        await files.write_files(self, contents, mode=mode)

    async def read_file(self, path: str, max_bytes: int = files.MAX_FILE_BYTES) -> bytes:
        """See :func:`sandbox.session.files.read_file`."""
        return await files.read_file(self, path, max_bytes)

    async def read_tree(
        self, path: str, *, max_bytes: int = files.MAX_TREE_BYTES, max_files: int = files.MAX_TREE_FILES
    ) -> dict[str, bytes]:
        """See :func:`sandbox.session.files.read_tree`."""
        return await files.read_tree(self, path, max_bytes=max_bytes, max_files=max_files)

    async def setup(self, contents: Mapping[str, bytes], script: str, timeout_s: float) -> None:
        """What a task needs before its agent: files, then a script in a subshell.  Raises SandboxStartError; TaskFault
        where the script fails."""
        try:
            await self.write_files(contents)
            if not script.strip():
                return
            done = await self.run(f"(eval {shlex.quote(script)})", timeout_s)
        except (OSError, TimeoutError, SandboxDestroyed, SandboxLost) as error:
            raise SandboxStartError(f"the task's setup failed: {error}") from error
        if done.timed_out:
            raise SandboxStartError(f"the task's setup ran out of its {timeout_s:g} s: {done.output[-500:]!r}")
        if done.exit_code != 0:
            raise TaskFault(f"the task's setup exited {done.exit_code}: {done.output[-500:]!r}")

    async def image_environment(self) -> Mapping[str, str]:
        """What its task's image sets for every process; nothing where nobody knows the image.  Raises EngineError."""
        return await self.engine.image_environment(self.spec.task_image) if self.spec else {}

    # ---- life ----

    def extend(self, seconds: float) -> None:
        """Let the container live for ``seconds`` from now, or to its maximum.  Does not wait: PID 1's answer moves
        ``remaining_s``."""
        if self.alive:
            self.send(wire.extend_frame(self.next_request(), round(seconds * 1000)))

    def set_child_listener(self, listener: ChildProcessListener | None) -> None:
        """Who gets the grade child's messages.  Raises OSError (EBUSY) while somebody else does."""
        if listener is not None and self._grade is not None:
            raise OSError(errno.EBUSY, "the sandbox's tests run, or a tree of files is being read")
        self._grade = listener

    async def close(self) -> None:
        """End the container.  The request leaves before the first await, so that a cancelled close still closes."""
        if not self.mark_closing():
            return
        self.send(wire.quit_frame(self.next_request()))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.stream_ended()
        except TimeoutError:
            await self._abandon()
        else:
            if self.spec is None or not self.spec.auto_remove:
                await self._abandon()
        finally:
            self.close_stream()

    async def destroy(self, why: SandboxDestroyed) -> None:
        """End it for what the agent did; whoever waits for an answer is told so."""
        self.mark_destroyed(why)
        await self._abandon()

    async def _abandon(self) -> None:
        """Remove by force.  A daemon that does not answer leaves the container to its own deadline."""
        self.mark_closing()
        self.close_stream()
        with contextlib.suppress(InfraError):
            await asyncio.shield(self.engine.remove(self.container))

    def handle(self, message: wire.InitMessage) -> None:
        match message:
            case wire.SlotOutput() | wire.CommandStatus() | wire.ProcessDied():
                if (used := self._slots.get(message.slot)) is not None:
                    used.handle(message)
                    if isinstance(used, PseudoTerminal) and not used.running:  # PID 1 has freed its place
                        del self._slots[message.slot]
            case wire.SlotState():
                self._told_again(message)
            case wire.GradeOutput() | wire.GradeExit():
                if self._grade is not None:
                    self._grade.on_message(message)
            case _:
                raise wire.StreamProtocolError(f"{type(message).__name__} is nobody's")

    def on_requests_lost(self, after: int, up_to: int) -> None:
        for used in self._slots.values():
            if isinstance(used, SandboxShell) and after < used.request <= up_to:
                used.lost()

    def _told_again(self, state: wire.SlotState) -> None:
        if (used := self._slots.get(state.slot)) is not None:
            used.handle(state)
        elif state.slot != wire.MAIN_SLOT:  # of a client that is gone
            self.send(wire.close_frame(self.next_request(), state.slot))


def _without_network(bench: SandboxSession) -> AbstractAsyncContextManager[Mapping[str, str]]:
    del bench
    return nullcontext({})
