"""A persistent shell of the agent: one command at a time, with bounded output and time.

Commands are typed into the image's bash as at a terminal, without prompts and echo: nothing of ours is in the shell
(``sandbox/init/shell.c``). Its state (directory, variables, functions, background jobs) lasts from command to command,
``$?`` too. A command that is not complete ends with bash's error at the end of its text. A command that exceeds its
time limit is killed together with the shell, and the next command gets a new shell in the same directory; background
jobs of earlier commands keep running. A command can also be left running and its output read later: starting, waiting,
reading and interrupting are separate steps, and :meth:`SandboxShell.run` does all of them. Output of jobs between
commands comes first in the next command's output, as on a terminal.

The agent's own shell reports the exit code. It is for the agent, for people, and for small bounded rewards; no verdict
may depend on it.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.truncation import HeadTailBuffer
from sandbox.errors import SandboxLost, ShellBusy
from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.init_messages import (
    CommandStatus,
    DeathCause,
    InitAck,
    ProcessDied,
    SlotOutput,
    SlotState,
)
from sandbox.session.init_connection.init_requests import Spool

KEPT_OUTPUT_BYTES = 64 << 10
"""Bytes kept of the head and of the tail of a command's output."""
PROGRAM_POLL_S = 0.5
"""Seconds between two looks at the time that a program has left."""
INTERRUPT_S = 30.0
"""Maximum seconds for an interrupt. PID 1 answers in milliseconds; a host that takes longer is not healthy."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one command."""

    output: str
    """Standard output and error, interleaved; head and tail if it was too long."""
    truncated_bytes: int
    exit_code: int | None
    """None when the command exceeded its time limit or no shell could be started."""
    timed_out: bool
    ms: float
    shell_restarted: bool
    """True if variables and functions are lost; the directory is kept."""
    saved: str = ""
    """File in the sandbox with the whole output, up to its limit; empty when the output is complete here."""


class SlotConnection(Protocol):
    """The part of a session's connection that shells and terminals need."""

    def next_request(self) -> int: ...

    def send(self, frame: bytes) -> None: ...

    def request(self, make: Callable[[int], bytes]) -> int: ...

    async def wait_acknowledged(self, request: int, timeout_s: float) -> InitAck:
        """Wait for the acknowledgement of a request. Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        ...

    async def wait_for_event(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait for an event that a message sets. Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        ...

    async def timeout_reason(self, request: str) -> SandboxLost:
        """Return the error for a request that got no answer."""
        ...


async def interrupt_slot(link: SlotConnection, slot: int) -> None:
    """Kill what runs in a slot. Raises SandboxLost, SandboxDestroyed."""
    try:
        await link.wait_acknowledged(link.request(lambda n: init_requests.interrupt_frame(n, slot)), INTERRUPT_S)
    except TimeoutError as error:
        raise await link.timeout_reason(f"an interrupt within {INTERRUPT_S:.0f} s") from error


class SandboxShell:
    """A shell of a session. It runs one command at a time and raises ShellBusy for a second one."""

    def __init__(self, link: SlotConnection, slot: int = wire.MAIN_SLOT, cwd: str = "/") -> None:
        self._link = link
        self.slot = slot
        self._output = HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        self.request = 0
        """Id of the command that was started and whose result has not been read; 0 for none."""
        self._started = 0.0
        self._ended = asyncio.Event()
        self._end: CommandStatus | ProcessDied | None = None
        self._live: Callable[[str], None] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._spool: Spool | None = None
        self._restarted = False
        self.cwd = cwd
        self.commands = 0

    @property
    def busy(self) -> bool:
        """True while a command was started whose result has not been read."""
        return self.request != 0

    @property
    def has_result(self) -> bool:
        """True if a result can be read."""
        return self.busy and self._end is not None

    def handle(
        self,
        message: SlotOutput | CommandStatus | ProcessDied | SlotState,
    ) -> None:
        """Handle a message; the session calls this in PID 1's order."""
        match message:
            case SlotOutput():
                self._output.feed(message.data)
                if self._live is not None:
                    self._live(self._decoder.decode(message.data))
                return
            case SlotState():
                self._restore_state(message)
                return
            case CommandStatus():
                self.cwd = message.cwd
            case ProcessDied():
                self._restarted = True
                if message.request not in (0, self.request):  # it is for an abandoned command
                    self._output = HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        if message.request == self.request and self._end is None:
            self._end = message
            self._ended.set()

    def _restore_state(self, state: SlotState) -> None:
        self.cwd = state.cwd
        if state.running and state.request != self.request:  # its client is lost
            self._link.send(init_requests.interrupt_frame(self._link.next_request(), self.slot))

    def start(self, command: str, on_output: Callable[[str], None] | None = None, spool: Spool | None = None) -> None:
        """Start a command. ``on_output`` receives the text as it comes and must not raise.

        Raises ShellBusy, and ValueError for a command with NUL bytes or of more than 1 MiB - 1 KiB.
        """
        if self.request:
            raise ShellBusy
        request = self._link.next_request()
        spool = spool or Spool(f"/tmp/full_output_{self.slot}_{request}.txt", 2 * KEPT_OUTPUT_BYTES)  # noqa: S108  the sandbox's
        frame = init_requests.run_frame(request, command.encode(errors="surrogateescape"), self.slot, spool)
        self.request, self._end, self._live, self._spool = request, None, on_output, spool
        self._started = time.perf_counter()
        self._ended.clear()
        self._link.send(frame)

    async def wait_until_ended(self, timeout_s: float) -> bool:
        """Return whether the command ends within this time. Raises SandboxLost or SandboxDestroyed."""
        try:
            await self._link.wait_for_event(self._ended, timeout_s)
        except TimeoutError:
            return False
        return True

    def new_output(self) -> str:
        """Return a running command's output since the last call; head and tail if it was too long."""
        kept, self._output = self._output, HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        return kept.text()

    async def interrupt(self) -> None:
        """Kill the command and the shell, and wait until both are dead. Raises SandboxLost or SandboxDestroyed."""
        await interrupt_slot(self._link, self.slot)

    def finish(self, *, timed_out: bool = False) -> CommandResult:
        """Return the result of a command that has ended, with its unread output."""
        end, kept, spool = self._end, self._output, self._spool
        self._output = HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        restarted, self._restarted = self._restarted, False
        self.release()
        self.commands += 1
        code = None if timed_out or end is None or end.code < 0 else end.code
        ms = (time.perf_counter() - self._started) * 1000
        saved = spool.path if spool and end and end.spooled else ""
        return CommandResult(kept.text(), kept.dropped, code, timed_out, ms, restarted, saved)

    def release(self) -> None:
        """Allow the next command; unread output comes first in its output."""
        self.request, self._live, self._spool = 0, None, None

    def lost(self) -> None:
        """Fail the command, which never reached PID 1."""
        if self.request and self._end is None:
            self._end = ProcessDied(self.slot, self.request, -1, 0, DeathCause.INTERRUPTED)
            self._ended.set()

    def abandon(self) -> None:
        """Kill the command without waiting; its result and late output are dropped."""
        if self.request and self._end is None:
            self._link.send(init_requests.interrupt_frame(self._link.next_request(), self.slot))
        self.release()

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """Run ``command``, and kill it after ``timeout_s``.

        Raises SandboxLost or SandboxDestroyed when the container ends, and what :meth:`start` raises.
        """
        self.start(command, on_output)
        try:
            timed_out = not await self.wait_until_ended(timeout_s)
            if timed_out:
                await self.interrupt()
        except BaseException:  # cancelled, or the container has ended
            self.abandon()
            raise
        return self.finish(timed_out=timed_out)

    async def run_while(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run ``command``, and kill it when ``remaining_s()`` is not above 0.  Raises as :meth:`run`."""
        self.start(command, on_output)
        try:
            while remaining_s() > 0 and not await self.wait_until_ended(PROGRAM_POLL_S):
                continue
            if timed_out := not self.has_result:
                await self.interrupt()
        except BaseException:  # as in run
            self.abandon()
            raise
        return self.finish(timed_out=timed_out)
