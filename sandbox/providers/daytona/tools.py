"""SETA's six tools, which include OpenClaw's four, in a Daytona sandbox: :mod:`sandbox.tools.seta` with other shells.

The difference: a process that is started with ``block=false`` has an input but no terminal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from sandbox.pool.settings import COMMAND_TIMEOUT_S
from sandbox.providers.daytona.files import write_files
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.providers.daytona.shell import CommandProgress, DaytonaShell
from sandbox.tools import SETA, SandboxTool, ToolArguments, ToolResult, answer_tool_call
from sandbox.tools.named_sessions import NO_ACTIVE_SESSION, NO_SESSION
from sandbox.tools.seta import (
    COMPLETED_MARK,
    LONGEST_WAIT_S,
    NO_LONGER_RUNNING,
    WAIT_S,
    add_line,
    describe_killed,
    describe_started,
    describe_still_running,
    describe_unwritten,
    describe_without_input,
    describe_written,
    show_output,
)
from sandbox.tools.tool import (
    OUTPUT_CHARS,
    SHELL_RESTARTED,
    ToolError,
    file_argument,
    flag_argument,
    seconds_argument,
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
    _in_background: set[str] = field(default_factory=set[str])
    """Sessions of which a command was left to run since they were killed: the agent may look at these."""

    async def call(self, name: str, arguments: object) -> ToolResult:
        """Call a tool; the agent gets its mistakes as text. Raises SandboxLost."""
        calls: Mapping[str, Callable[[ToolArguments], Awaitable[ToolResult]]] = {
            "shell_exec": self._exec,
            "shell_view": self._view,
            "shell_wait": self._wait,
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
        if block and progress.has_ended:
            return _finished(shell, progress)
        self._in_background.add(name)
        if not block:
            first = self._readable(shell, progress)
            return ToolResult(describe_started(name, first), progress.code, raw=progress.new_output.text())
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

    def _find(self, arguments: ToolArguments) -> DaytonaShell:
        name = text_argument(arguments, "id")
        if name not in self._in_background:
            raise ToolError(NO_SESSION.format(name))
        return self._named[name]

    async def _find_active(self, name: str) -> DaytonaShell:
        shell = self._named.get(name)
        left = name in self._in_background
        if shell is None or not left or not shell.running or (await shell.poll(0.0)).has_ended:
            raise ToolError(NO_ACTIVE_SESSION.format(name))
        return shell

    async def _view(self, arguments: ToolArguments) -> ToolResult:
        return await self._look(self._find(arguments), 0.0)

    async def _wait(self, arguments: ToolArguments) -> ToolResult:
        shell = self._find(arguments)
        seconds = seconds_argument(arguments, "wait_seconds", WAIT_S, LONGEST_WAIT_S)
        return await self._look(shell, seconds, mark="") if shell.running else ToolResult(NO_LONGER_RUNNING)

    async def _look(self, shell: DaytonaShell, wait_s: float, mark: str = COMPLETED_MARK) -> ToolResult:
        """Return the session's new output within ``wait_s`` seconds, and ``mark`` if it has ended."""
        progress = await shell.poll(wait_s)
        text = self._readable(shell, progress) + (mark if progress.has_ended else "")
        return ToolResult(text, progress.code, raw=progress.new_output.text())

    async def _write(self, arguments: ToolArguments) -> ToolResult:
        name, text = text_argument(arguments, "id"), text_argument(arguments, "command")
        shell = await self._find_active(name)
        if not await shell.send(text):
            return ToolResult(describe_without_input(name))
        return await self._look(shell, _FIRST_S, mark="")

    async def _kill(self, arguments: ToolArguments) -> ToolResult:
        name = text_argument(arguments, "id")
        await (await self._find_active(name)).kill()
        self._in_background.discard(name)
        return ToolResult(describe_killed(name))

    async def _write_file(self, arguments: ToolArguments) -> ToolResult:
        content, path = text_argument(arguments, "content"), text_argument(arguments, "file_path")
        whole = file_argument(arguments, "file_path", self.workdir)
        try:
            await write_files(self.machine, {whole: content.encode(errors="surrogateescape")}, 0o644)
        except OSError as error:
            return ToolResult(describe_unwritten(path, error))
        return ToolResult(describe_written(path))

    @staticmethod
    def _readable(shell: DaytonaShell, progress: CommandProgress) -> str:
        return show_output(shell.take_output(progress), OUTPUT_CHARS, shell.file if progress.new_output.dropped else "")


def _finished(shell: DaytonaShell, progress: CommandProgress) -> ToolResult:
    done = shell.result(progress)
    text = show_output(done.output, OUTPUT_CHARS, done.saved)
    text = add_line(text, SHELL_RESTARTED) if done.shell_restarted else text
    return ToolResult(text, done.exit_code, done.ms, raw=done.output)
