"""A persistent shell in a Daytona sandbox: one command at a time, with bounded output and time.

It behaves like :mod:`sandbox.session.shell`, except that output of background jobs between two commands is lost.
"""

from __future__ import annotations

import base64
import time
from typing import NamedTuple

from protocol.truncation import HeadTailBuffer
from sandbox.errors import SandboxLost, ShellBusy
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.session.shell import KEPT_OUTPUT_BYTES, CommandResult

_CHUNK_S = 20.0
"""Maximum seconds of one call; connections that are silent for longer are cut."""
MAX_COMMAND_BYTES = 1 << 20
_WORDS, _KILLED_TIMES = 6, 3


class CommandProgress(NamedTuple):
    """The state of a command."""

    has_ended: bool
    died: bool
    """True if the shell ended with it."""
    code: int | None
    size: int
    """Size of its whole output in bytes."""
    timed_out: bool
    new_output: HeadTailBuffer


class DaytonaShell:
    """One shell, started by its first command."""

    def __init__(self, machine: DaytonaHandle, workdir: str) -> None:
        self._machine, self._folder, self._workdir = machine, machine.staging_path(), workdir
        self._opened = False
        self._number = 0
        self._input = False
        self._seen = 0
        """Bytes of the command's output that were read."""
        self._began = 0.0
        self.running = False
        """True while a command runs, as far as is known."""

    async def start(self, command: str, *, with_input: bool = False) -> None:
        """Start a command.

        Raises ShellBusy, SandboxLost, and ValueError for a command with NUL bytes or of more than 1 MiB.
        """
        if self.running:
            raise ShellBusy
        encoded = command.encode(errors="surrogateescape")
        if b"\0" in encoded:
            raise ValueError("a command must not contain a NUL byte")
        if len(encoded) > MAX_COMMAND_BYTES:
            raise ValueError("a command has at most 1 MiB")
        if not self._opened:
            if (done := await self._machine.call("open", self._folder, self._workdir)).code:
                raise SandboxLost(f"a shell cannot be opened in sandbox {self._machine.id}: code {done.code}")
            self._opened = True
        self._number += 1
        self._seen, self._input, self._began = 0, with_input, time.perf_counter()
        self.running = True
        await self._machine.upload([(f"{self._folder}/{self._number}.command", encoded)])

    async def poll(self, wait_s: float, *, kill: bool = False) -> CommandProgress:
        """Wait for the command's end or for ``wait_s``; then kill it or leave it running. Raises SandboxLost."""
        until = time.monotonic() + wait_s
        while True:
            left_s = max(until - time.monotonic(), 0.0)
            last = left_s <= _CHUNK_S
            progress = await self._drive(min(left_s, _CHUNK_S), kill=kill and last)
            if progress.has_ended or last:
                self.running = not progress.has_ended
                return progress

    async def _drive(self, wait_s: float, *, kill: bool) -> CommandProgress:
        flags = (str(int(self._input)), str(round(wait_s * 1000)), str(int(kill)))
        arguments = ("drive", self._folder, str(self._number), *flags, str(self._seen), str(KEPT_OUTPUT_BYTES))
        done = await self._machine.call(*arguments, wait_s=wait_s)
        for _ in range(_KILLED_TIMES):
            if len(done.words) == _WORDS:
                break
            done = await self._machine.call(
                *arguments, wait_s=wait_s
            )  # the agent's command may have killed the first call
        else:
            raise SandboxLost(f"sandbox {self._machine.id} does not report the state of its command: code {done.code}")
        how, code, size, timed_out, head, tail = done.words
        kept = HeadTailBuffer(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES)
        for part in (head, tail):
            kept.feed(base64.b64decode(part[:-1]))
        kept.total = int(size) - self._seen
        over = how != "running"
        return CommandProgress(over, how == "died", int(code) if over else None, int(size), timed_out == "1", kept)

    def take_output(self, progress: CommandProgress) -> str:
        """Return the output since the last call."""
        self._seen = progress.size
        return progress.new_output.text()

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        """Evaluate a command, and kill it after ``timeout_s``. Raises as :meth:`start`."""
        await self.start(command)
        progress = await self.poll(timeout_s, kill=True)
        self.running = False
        return self.result(progress)

    def result(self, progress: CommandProgress) -> CommandResult:
        """Return the result of a command that has ended."""
        text, kept = self.take_output(progress), progress.new_output
        ms = (time.perf_counter() - self._began) * 1000
        saved = self.file if kept.dropped else ""
        return CommandResult(
            text,
            kept.dropped,
            None if progress.timed_out else progress.code,
            progress.timed_out,
            ms,
            progress.died,
            saved,
        )

    @property
    def file(self) -> str:
        """Path of the file with the command's whole output."""
        return f"{self._folder}/{self._number}.output"

    async def send(self, text: str) -> bool:
        """Send a line to the command's input. Returns whether it has an input. Raises SandboxLost."""
        return self._input and not (await self._machine.call("send", self._folder, str(self._number), text)).code

    async def kill(self) -> None:
        """Kill the command. Raises SandboxLost."""
        await self._machine.call("kill", self._folder, str(self._number))
        self.running = False
