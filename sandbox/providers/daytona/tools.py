"""SETA's six tools, which include OpenClaw's four, in a Daytona sandbox: :mod:`sandbox.tools.seta` with other shells.

The difference: a process that is started with ``block=false`` has an input but no terminal.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sandbox.pool.settings import COMMAND_TIMEOUT_S
from sandbox.providers.daytona.files import write_files
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.providers.daytona.shell import CommandProgress, DaytonaShell
from sandbox.tools import SETA, SandboxTool, ToolArguments, ToolResult, answer_tool_call
from sandbox.tools.seta import (
    COMPLETED_MARK,
    LONGEST_WAIT_S,
    NO_OUTPUT,
    WAIT_S,
    describe_started,
    describe_still_running,
)
from sandbox.tools.tool import (
    OUTPUT_CHARS,
    SHELL_RESTARTED,
    ToolError,
    flag_argument,
    seconds_argument,
    shorten_output,
    text_argument,
)

_MOST_SHELLS = 8
_FIRST_S = 0.5
"""Seconds to wait for a background process's first output."""


@dataclass(slots=True)
class DaytonaTools:
    """The tools of one sandbox, with the sessions that its agent has named."""

    machine: DaytonaHandle
    workdir: str
    _named: dict[str, DaytonaShell] = field(default_factory=dict[str, DaytonaShell])

    async def call(self, name: str, arguments: object) -> ToolResult:
        """Call a tool; the agent gets its mistakes as text. Raises SandboxLost."""
        calls: Mapping[str, Callable[[ToolArguments], Awaitable[ToolResult]]] = {
            "shell_exec": self._exec,
            "shell_view": partial(self._wait, most_s=0.0),
            "shell_wait": partial(self._wait, most_s=LONGEST_WAIT_S),
            "shell_write_to_process": self._write,
            "shell_kill_process": self._kill,
            "shell_write_content_to_file": self._write_file,
        }

        async def do(tool: SandboxTool, arguments: ToolArguments) -> ToolResult:
            return await calls[tool.name](arguments)

        return await answer_tool_call(name, arguments, SETA, do)

    async def _exec(self, arguments: ToolArguments) -> ToolResult:
        name, command = text_argument(arguments, "id", "main"), text_argument(arguments, "command")
        if not command.strip():
            raise ToolError("argument 'command' is empty")
        block = flag_argument(arguments, "block", default=True)
        shell = await self._idle(name)
        await shell.start(command, with_input=not block)
        progress = await shell.poll(COMMAND_TIMEOUT_S if block else _FIRST_S)
        if not block:
            first = self._readable(shell, progress) + (COMPLETED_MARK if progress.has_ended else "")
            return ToolResult(describe_started(name, first), progress.code, raw=progress.new_output.text())
        if progress.has_ended:
            return _finished(shell, progress)
        partial_output = self._readable(shell, progress)
        return ToolResult(
            describe_still_running(name, COMMAND_TIMEOUT_S, partial_output),
            timed_out=True,
            raw=progress.new_output.text(),
        )

    async def _idle(self, name: str) -> DaytonaShell:
        """Return the session's shell. Raises ToolError while it runs another command."""
        shell = self._named.get(name)
        if shell is None:
            if len(self._named) >= _MOST_SHELLS:
                raise ToolError(f"{_MOST_SHELLS} sessions are open; use one of {', '.join(self._named)}")
            shell = self._named[name] = DaytonaShell(self.machine, self.workdir)
        if shell.running and not (await shell.poll(0.0)).has_ended:
            raise ToolError(
                f"session '{name}' still runs a command: shell_view('{name}') shows its output, "
                f"shell_kill_process('{name}') ends it; or use another id"
            )
        return shell

    def _find(self, name: str) -> DaytonaShell:
        if name not in self._named:
            raise ToolError(f"no session '{name}': start one with shell_exec")
        return self._named[name]

    async def _wait(self, arguments: ToolArguments, *, most_s: float) -> ToolResult:
        shell = self._find(text_argument(arguments, "id"))
        seconds = seconds_argument(arguments, "wait_seconds", WAIT_S, most_s) if most_s else 0.0
        progress = await shell.poll(seconds)
        text = self._readable(shell, progress) or NO_OUTPUT
        return ToolResult(
            text + (COMPLETED_MARK if progress.has_ended else ""), progress.code, raw=progress.new_output.text()
        )

    async def _write(self, arguments: ToolArguments) -> ToolResult:
        name, text = text_argument(arguments, "id"), text_argument(arguments, "command")
        shell = self._find(name)
        if not shell.running or (await shell.poll(0.0)).has_ended:
            raise ToolError(f"session '{name}' is not running")
        if not await shell.send(text):
            raise ToolError(f"session '{name}' has no input: start its command with block=false to write to it")
        progress = await shell.poll(_FIRST_S)
        return ToolResult(
            (self._readable(shell, progress) or NO_OUTPUT) + (COMPLETED_MARK if progress.has_ended else ""),
            progress.code,
            raw=progress.new_output.text(),
        )

    async def _kill(self, arguments: ToolArguments) -> ToolResult:
        name = text_argument(arguments, "id")
        shell = self._find(name)
        if not shell.running or (await shell.poll(0.0)).has_ended:
            return ToolResult(f"Session '{name}' is not running.")
        await shell.kill()
        return ToolResult(f"Process in session '{name}' has been terminated.")

    async def _write_file(self, arguments: ToolArguments) -> ToolResult:
        content, path = text_argument(arguments, "content"), text_argument(arguments, "file_path")
        if not path.strip() or path.endswith("/"):
            raise ToolError("argument 'file_path' names no file")
        whole = posixpath.join(self.workdir, path)
        await write_files(self.machine, {whole: content.encode(errors="surrogateescape")}, 0o644)
        return ToolResult(f"Content successfully written to '{path}'.")

    @staticmethod
    def _readable(shell: DaytonaShell, progress: CommandProgress) -> str:
        return shorten_output(
            shell.take_output(progress), OUTPUT_CHARS, shell.file if progress.new_output.dropped else ""
        )


def _finished(shell: DaytonaShell, progress: CommandProgress) -> ToolResult:
    done = shell.result(progress)
    text = shorten_output(done.output, OUTPUT_CHARS, done.saved)
    notes = [SHELL_RESTARTED] if done.shell_restarted else []
    return ToolResult(
        "\n".join([*([text] if text else []), *notes]) or "(no output)", done.exit_code, done.ms, raw=done.output
    )
