"""SETA's six tools, of which OpenClaw's four are some, in a sandbox of Daytona's: :mod:`sandbox.tools.seta`, with
shells of another kind.

What differs: a process that is started with ``block=false`` has an input and no terminal.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sandbox.daytona.files import write_files
from sandbox.daytona.machine import Machine
from sandbox.daytona.shells import Look, Shell
from sandbox.provider import COMMAND_S
from sandbox.tools import SETA, Arguments, Tool, ToolResult, answered
from sandbox.tools.seta import COMPLETED, LONGEST_WAIT_S, NOTHING, WAIT_S, started, still_running
from sandbox.tools.tool import (
    OUTPUT_CHARS,
    RESTARTED,
    ToolError,
    flag_argument,
    readable,
    seconds_argument,
    text_argument,
)

_MOST_SHELLS = 8
_FIRST_S = 0.5
"""A background process's first output is waited for so long."""


@dataclass(slots=True)
class SetaTools:
    """Of one sandbox: the sessions that its agent has named."""

    machine: Machine
    workdir: str
    _named: dict[str, Shell] = field(default_factory=dict[str, Shell])

    async def call(self, name: str, arguments: object) -> ToolResult:
        """Raises SandboxLost; whatever the agent did wrong is an answer to it."""
        calls: Mapping[str, Callable[[Arguments], Awaitable[ToolResult]]] = {
            "shell_exec": self._exec,
            "shell_view": partial(self._wait, most_s=0.0),
            "shell_wait": partial(self._wait, most_s=LONGEST_WAIT_S),
            "shell_write_to_process": self._write,
            "shell_kill_process": self._kill,
            "shell_write_content_to_file": self._write_file,
        }

        async def do(tool: Tool, said: Arguments) -> ToolResult:
            return await calls[tool.name](said)

        return await answered(name, arguments, SETA, do)

    async def _exec(self, arguments: Arguments) -> ToolResult:
        name, command = text_argument(arguments, "id", "main"), text_argument(arguments, "command")
        if not command.strip():
            raise ToolError("argument 'command' is empty")
        block = flag_argument(arguments, "block", default=True)
        shell = await self._idle(name)
        await shell.start(command, with_input=not block)
        look = await shell.look(COMMAND_S if block else _FIRST_S)
        if not block:
            first = self._readable(shell, look) + (COMPLETED if look.over else "")
            return ToolResult(started(name, first), look.code, raw=look.kept.text())
        if look.over:
            return _finished(shell, look)
        partial_output = self._readable(shell, look)
        return ToolResult(still_running(name, COMMAND_S, partial_output), timed_out=True, raw=look.kept.text())

    async def _idle(self, name: str) -> Shell:
        """Raises ToolError while it runs another command."""
        shell = self._named.get(name)
        if shell is None:
            if len(self._named) >= _MOST_SHELLS:
                raise ToolError(f"{_MOST_SHELLS} sessions are open; use one of {', '.join(self._named)}")
            shell = self._named[name] = Shell(self.machine, self.workdir)
        if shell.running and not (await shell.look(0.0)).over:
            raise ToolError(
                f"session '{name}' still runs a command: shell_view('{name}') shows its output, "
                f"shell_kill_process('{name}') ends it; or use another id"
            )
        return shell

    def _find(self, name: str) -> Shell:
        if name not in self._named:
            raise ToolError(f"no session '{name}': start one with shell_exec")
        return self._named[name]

    async def _wait(self, arguments: Arguments, *, most_s: float) -> ToolResult:
        shell = self._find(text_argument(arguments, "id"))
        seconds = seconds_argument(arguments, "wait_seconds", WAIT_S, most_s) if most_s else 0.0
        look = await shell.look(seconds)
        text = self._readable(shell, look) or NOTHING
        return ToolResult(text + (COMPLETED if look.over else ""), look.code, raw=look.kept.text())

    async def _write(self, arguments: Arguments) -> ToolResult:
        name, text = text_argument(arguments, "id"), text_argument(arguments, "command")
        shell = self._find(name)
        if not shell.running or (await shell.look(0.0)).over:
            raise ToolError(f"session '{name}' is not running")
        if not await shell.send(text):
            raise ToolError(f"session '{name}' has no input: start its command with block=false to write to it")
        look = await shell.look(_FIRST_S)
        return ToolResult(
            (self._readable(shell, look) or NOTHING) + (COMPLETED if look.over else ""), look.code, raw=look.kept.text()
        )

    async def _kill(self, arguments: Arguments) -> ToolResult:
        name = text_argument(arguments, "id")
        shell = self._find(name)
        if not shell.running or (await shell.look(0.0)).over:
            return ToolResult(f"Session '{name}' is not running.")
        await shell.kill()
        return ToolResult(f"Process in session '{name}' has been terminated.")

    async def _write_file(self, arguments: Arguments) -> ToolResult:
        content, path = text_argument(arguments, "content"), text_argument(arguments, "file_path")
        if not path.strip() or path.endswith("/"):
            raise ToolError("argument 'file_path' names no file")
        whole = posixpath.join(self.workdir, path)
        await write_files(self.machine, {whole: content.encode(errors="surrogateescape")}, 0o644)
        return ToolResult(f"Content successfully written to '{path}'.")

    @staticmethod
    def _readable(shell: Shell, look: Look) -> str:
        return readable(shell.shown(look), OUTPUT_CHARS, shell.file if look.kept.dropped else "")


def _finished(shell: Shell, look: Look) -> ToolResult:
    done = shell.result(look)
    text = readable(done.output, OUTPUT_CHARS, done.saved)
    notes = [RESTARTED] if done.shell_restarted else []
    return ToolResult(
        "\n".join([*([text] if text else []), *notes]) or "(no output)", done.exit_code, done.ms, raw=done.output
    )
