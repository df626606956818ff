"""The agent's persistent shell: one command at a time, its output bounded, its time bounded.

State (directory, variables, functions, background jobs) lasts from command to command.  A command that runs out of its
time is killed inside the container together with the shell, and the next command gets a new shell in the same
directory; background jobs of earlier commands go on.  What they print between commands opens the next command's
output, as on a terminal.

The exit code is what the agent's own shell said.  It is for the agent and for people; no rule may read it.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sandbox import wire
from sandbox.errors import SandboxLost
from sandbox.truncate import HeadTail

KEEP_BYTES = 64 << 10
"""Of each end of a command's output."""
INTERRUPT_S = 30.0
"""PID 1 answers an interrupt in milliseconds; a host that needs longer than this is not healthy."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    output: str
    """Standard output and error as they came, head and tail when there was too much."""
    truncated_bytes: int
    exit_code: int | None
    """None when the command was killed for its time or no shell could be started."""
    timed_out: bool
    ms: float
    shell_restarted: bool
    """Variables and functions are gone; the directory is kept."""


class Link(Protocol):
    """The session, as its shell sees it."""

    def next_request(self) -> int: ...

    def send(self, frame: bytes) -> None: ...

    async def answered(self, request: int, timeout_s: float) -> wire.Ack:
        """The acknowledgement of a request.  Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        ...

    async def arrived(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait for an event that a message sets.  Raises SandboxLost, SandboxDestroyed, TimeoutError."""
        ...


class Shell:
    """The session's shell.  Not safe for two commands at once: it says so."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._output = HeadTail(KEEP_BYTES, KEEP_BYTES)
        self._request = 0
        self._ended = asyncio.Event()
        self._end: wire.Status | wire.ShellDied | None = None
        self._live: Callable[[str], None] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._restarted = False
        self.cwd = "/"
        self.commands = 0

    def on_message(self, message: wire.Output | wire.Status | wire.ShellDied) -> None:
        """Called by the session, in the order in which PID 1 spoke."""
        match message:
            case wire.Output(data):
                self._output.feed(data)
                if self._live is not None:
                    self._live(self._decoder.decode(data))
                return
            case wire.Status():
                self.cwd = message.cwd
            case wire.ShellDied():
                self._restarted = True
        if message.request == self._request and self._end is None:
            self._end = message
            self._ended.set()

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """Evaluate ``command`` in the shell.  ``on_output`` gets the text as it comes; it must not
        raise.

        Raises SandboxLost or SandboxDestroyed when the container goes, ValueError for a command with NUL bytes.
        """
        if self._request:
            raise RuntimeError("the shell runs one command at a time")
        started = time.perf_counter()
        request = self._link.next_request()
        frame = wire.run(request, command.encode(errors="surrogateescape"))
        self._request, self._end, self._live = request, None, on_output
        self._ended.clear()
        timed_out = False
        self._link.send(frame)
        try:
            try:
                await self._link.arrived(self._ended, timeout_s)
            except TimeoutError:
                timed_out = True
                await self._interrupt()
        finally:
            if self._end is None:  # cancelled, or the container is gone: what comes late belongs to no command
                self._link.send(wire.interrupt(self._link.next_request()))
            self._request, self._live = 0, None
        kept, self._output = self._output, HeadTail(KEEP_BYTES, KEEP_BYTES)
        restarted, self._restarted = self._restarted, False
        self.commands += 1
        end = self._end
        code = None if timed_out or end is None or end.code < 0 else end.code
        ms = (time.perf_counter() - started) * 1000
        return CommandResult(kept.text(), kept.dropped, code, timed_out, ms, restarted)

    async def _interrupt(self) -> None:
        request = self._link.next_request()
        self._link.send(wire.interrupt(request))
        try:
            await self._link.answered(request, INTERRUPT_S)
        except TimeoutError as error:
            raise SandboxLost(f"PID 1 did not answer an interrupt within {INTERRUPT_S:.0f} s") from error
