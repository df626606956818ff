"""A Daytona sandbox with the common interface (:class:`sandbox.providers.interface.Sandbox`)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from protocol.errors import InfraError
from sandbox.errors import SandboxLost
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.suspicions import command_text
from sandbox.providers.daytona import files as daytona_files
from sandbox.providers.daytona.grading import grade_daytona_sandbox
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.providers.daytona.relay.connections import carry_agent_connections
from sandbox.providers.daytona.shell import DaytonaShell
from sandbox.providers.daytona.tools import DaytonaTools
from sandbox.session.files import MAX_FILE_BYTES, MAX_TREE_BYTES
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode
from sandbox.tools import ToolResult

_DELETE_S = 30.0
_LOOK_S = 5.0
"""Seconds after which it is looked whether an agent's program still has time."""


class DaytonaSandbox:
    """One open sandbox."""

    def __init__(
        self,
        machine: DaytonaHandle,
        task: Task,
        spared: Sequence[str],
        closed: Callable[[DaytonaSandbox], None],
        home: Path,
    ) -> None:
        """``spared`` are the processes from before the agent; ``closed`` is called when the sandbox ends; ``home`` is
        longshore's cache folder on this machine."""
        self.handle, self._task, self._spared, self._on_closed = machine, task, tuple(spared), closed
        self._home = home
        self._shell = DaytonaShell(machine, task.workdir)
        self._tools = DaytonaTools(machine, task.workdir)
        self._commands: list[str] = []
        """Commands that the agent has run."""
        self._closed = self._ran_agent = False

    @property
    def alive(self) -> bool:
        """True while the sandbox exists, as far as is known."""
        return not self._closed and self.handle.lost is None

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        self._open()
        self._commands.append(command)
        return await self._shell.run(command, timeout_s)

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        self._open()
        await daytona_files.write_files(self.handle, files, mode)

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        self._open()
        return await daytona_files.read_file(self.handle, path, max_bytes)

    async def read_tree(self, path: str, max_bytes: int = MAX_TREE_BYTES) -> Mapping[str, bytes]:
        self._open()
        return await daytona_files.read_tree(self.handle, path, max_bytes)

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        self._open()
        self._commands.append(command_text(arguments))
        return await self._tools.call(name, arguments)

    @asynccontextmanager
    async def listen(self, port: int) -> AsyncGenerator[socket.socket]:
        """Listen in the sandbox; see :meth:`sandbox.providers.pool_sandbox.AgentSandbox.listen`."""
        self._open()
        async with carry_agent_connections(self.handle, port, self._home) as listener:
            yield listener

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run the program of an agent; see :meth:`sandbox.providers.pool_sandbox.AgentSandbox.run_agent`."""
        self._open()
        self._ran_agent = True
        await self._shell.start(command)
        while True:
            left_s = remaining_s()
            progress = await self._shell.poll(min(max(left_s, 0.0), _LOOK_S), kill=left_s <= 0)
            if progress.has_ended or left_s <= 0:
                break
        self._shell.running = False
        result = self._shell.result(progress)
        on_output(result.output)
        return result

    async def grade(self, timeout_s: float | None = None, commands: Sequence[str] = ()) -> GradeResult:
        self._open()
        seen = [*self._commands, *(commands if self._ran_agent else ())]  # others went through this sandbox
        network = self._task.network
        if network.verify is not network.agent:
            await self.handle.allow(network.verify is NetworkMode.NONE, ",".join(network.allowed_hosts))
        graded = await grade_daytona_sandbox(self.handle, self._task, timeout_s, seen, self._spared)
        self._shell = DaytonaShell(self.handle, self._task.workdir)
        self._tools = DaytonaTools(self.handle, self._task.workdir)
        return graded

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._on_closed(self)
            await asyncio.shield(delete_quietly(self.handle))

    def _open(self) -> None:
        if self._closed:
            raise SandboxLost("the session was closed")


async def delete_quietly(machine: DaytonaHandle) -> None:
    """Delete a sandbox; if that fails, it ends by itself."""
    with contextlib.suppress(InfraError, TimeoutError):
        async with asyncio.timeout(_DELETE_S):
            await machine.delete()
