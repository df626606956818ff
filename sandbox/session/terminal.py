"""A process on a pseudo-terminal: keys in, a screen out, for vim, less, REPLs and curses programs.

PID 1 holds the other end and sends what the program prints. The screen is computed only on request, from the last
:data:`SCREEN_BYTES` since the previous one, so that a program that prints endlessly costs no more than that. A terminal
ends with its process; its last screen and output remain.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
from collections.abc import Callable, Sequence

from protocol.truncation import HeadTailBuffer
from sandbox.errors import SandboxLost
from sandbox.session.init_connection import init_requests
from sandbox.session.init_connection.init_messages import CommandStatus, ProcessDied, SlotOutput, SlotState
from sandbox.session.init_connection.init_requests import Spool
from sandbox.session.keys import encode_keys
from sandbox.session.shell import KEPT_OUTPUT_BYTES, SlotConnection, interrupt_slot
from sandbox.session.terminal_emulator import TerminalEmulator, TerminalScreen

SCREEN_BYTES = 64 << 10
ANSWER_S = 60.0


class PseudoTerminal:
    """A terminal of a session; :meth:`sandbox.session.sandbox_session.SandboxSession.open_terminal` creates it."""

    def __init__(
        self,
        link: SlotConnection,
        slot: int,
        rows: int,
        columns: int,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        """``on_output`` receives the output instead of the screen, as it comes, and ``b""`` at its end."""
        self._link = link
        self._on_output = on_output
        self.slot = slot
        self._unseen = HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        self._undrawn = HeadTailBuffer(0, SCREEN_BYTES)
        self._drawing = TerminalEmulator(rows, columns)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._news, self._ended = asyncio.Event(), asyncio.Event()
        self._spool: Spool | None = None
        self.exit_code: int | None = None
        """None while the process runs, and when the exit code is unknown."""
        self.saved = ""
        """File in the sandbox with the whole output, once the process has ended and if it was long."""

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return not self._ended.is_set()

    async def start(self, cwd: str, argv: Sequence[str], env: dict[str, str], spool: Spool | None = None) -> None:
        """Start the process. Raises OSError with the container's errno, SandboxLost, SandboxDestroyed."""
        self._spool = spool
        rows, columns = self._drawing.size
        await self._request(
            lambda n: init_requests.terminal_frame(
                n, self.slot, cwd=cwd, argv=argv, env=env, rows=rows, columns=columns, spool=spool
            ),
            "open a terminal",
        )

    def handle(
        self,
        message: SlotOutput | ProcessDied | CommandStatus | SlotState,
    ) -> None:
        """Handle a message; the session calls this in PID 1's order."""
        match message:
            case SlotOutput() if self._on_output:
                self._on_output(message.data)
            case SlotOutput():
                self._unseen.feed(message.data)
                self._undrawn.feed(message.data)
            case ProcessDied():
                self.exit_code = message.code
                self.saved = self._spool.path if self._spool and message.spooled else ""
                self._ended.set()
                if self._on_output:
                    self._on_output(b"")
            case _:
                return
        self._news.set()

    def lost(self) -> None:
        """Record that the process ended unnoticed."""
        self._ended.set()
        self._news.set()

    async def send(self, keys: str | Sequence[str]) -> None:
        """Type key names as in tmux, or text. Raises OSError when the process has ended or its input is full."""
        await self.send_bytes(encode_keys(keys))

    async def send_bytes(self, data: bytes) -> None:
        """Type raw bytes. Raises as :meth:`send`."""
        await self._request(lambda n: init_requests.type_frame(n, self.slot, data), "type")

    def type_soon(self, data: bytes) -> None:
        """Type raw bytes without waiting for PID 1, which drops them if the process has ended or its input is full."""
        self._link.send(init_requests.type_frame(self._link.next_request(), self.slot, data))

    async def resize(self, rows: int, columns: int) -> None:
        """Resize the terminal and notify the program, as a window system does. Raises ValueError for an impossible
        size."""
        self._draw()
        await self._request(lambda n: init_requests.resize_frame(n, self.slot, rows, columns), "resize the terminal")
        self._drawing.resize(rows, columns)

    def screen(self) -> TerminalScreen:
        """Return the screen as it is now."""
        self._draw()
        return self._drawing.screen()

    def new_output(self) -> str:
        """Return the text since the last call, with its escape sequences; head and tail if it was too long."""
        kept, self._unseen = self._unseen, HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        return kept.text().replace("\r\n", "\n")

    async def wait_until_ended(self, timeout_s: float) -> bool:
        """Return whether the process ends within this time. Raises SandboxLost or SandboxDestroyed."""
        try:
            await self._link.wait_for_event(self._ended, timeout_s)
        except TimeoutError:
            return False
        return True

    async def wait_until_settled(self, idle_s: float, most_s: float) -> None:
        """Wait until nothing was printed for ``idle_s``, the process has ended, or ``most_s`` have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while self.running:
                    self._news.clear()
                    await self._link.wait_for_event(self._news, idle_s)

    async def wait_for_screen(self, shows: Callable[[TerminalScreen], bool], timeout_s: float) -> bool:
        """Return whether ``shows`` holds for the screen within this time, before the process ends."""
        try:
            async with asyncio.timeout(timeout_s):
                while not shows(self.screen()):
                    if not self.running:
                        return False
                    self._news.clear()
                    await self._link.wait_for_event(self._news, timeout_s)
        except TimeoutError:
            return False
        return True

    async def kill(self) -> None:
        """Kill the process and its children, and wait until they are dead. Raises SandboxLost or SandboxDestroyed."""
        if self.running:
            await interrupt_slot(self._link, self.slot)

    def _draw(self) -> None:
        undrawn, self._undrawn = self._undrawn, HeadTailBuffer(0, SCREEN_BYTES)
        if undrawn.dropped:
            self._drawing.clear()
            self._decoder.reset()
        self._drawing.feed(self._decoder.decode(undrawn.tail))

    async def _request(self, make: Callable[[int], bytes], what: str) -> None:
        try:
            ack = await self._link.wait_acknowledged(self._link.request(make), ANSWER_S)
        except TimeoutError as error:
            raise SandboxLost(f"PID 1 did not {what} within {ANSWER_S:.0f} s") from error
        if ack.error:
            raise OSError(ack.error, os.strerror(ack.error), what)
