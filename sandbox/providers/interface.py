"""The interface to sandboxes, and its implementation by a pool in this process.

:class:`LocalProvider` uses a pool in this process; :class:`sandbox.providers.remote.RemotePool` calls a server. Both
behave alike: the conformance suite (tests/integration/sandbox/providers) runs the same cases on all.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from sandbox.agent_programs import AGENT_PROGRAMS_FOLDER, AgentPrograms
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.docker.network.container_sockets import can_listen_in_containers, listen_in_container
from sandbox.docker.retry import BUSY_STATUSES, call_with_retries
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import grade_sandbox
from sandbox.grading.suspicions import command_text
from sandbox.pool.sandbox_pool import PoolStatistics, SandboxPool
from sandbox.pool.settings import COMMAND_TIMEOUT_S
from sandbox.session.files import MAX_FILE_BYTES, MAX_TREE_BYTES, FileTooLarge
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task
from sandbox.tools import ToolContext, ToolResult, call_tool


class Sandbox(Protocol):
    """One session. Every method raises SandboxLost (infrastructure) or SandboxDestroyed (the agent's action) when the
    container no longer exists."""

    @property
    def alive(self) -> bool:
        """True while the sandbox exists, as far as is known."""
        ...

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        """Evaluate a command in the persistent shell.

        Raises ShellBusy while a command that a tool started is still running there, and ValueError for a command with
        NUL bytes or one that is longer than the provider takes, about 1 MiB.
        """
        ...

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        """Write files, by absolute path, and the folders above them. Raises OSError, and ValueError for a relative
        path."""
        ...

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """Read a regular file. Raises OSError: ENOENT, EISDIR, ELOOP for a link, EINVAL for anything else, EFBIG."""
        ...

    async def read_tree(self, path: str, max_bytes: int = MAX_TREE_BYTES) -> Mapping[str, bytes]:
        """Read the regular files below a folder, by their relative paths.

        Raises OSError: ENOENT, EFBIG, EBUSY while tests run, EINTR when they start meanwhile, ETIME when it takes too
        long.
        """
        ...

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        """Call one of SETA's six tools, which include OpenClaw's four. Errors are text for the agent, also for invalid
        ``arguments``."""
        ...

    async def grade(self, timeout_s: float | None = None) -> GradeResult:
        """Run the task's hidden tests at the task's grading level. The shell survives this only at ``live`` and
        ``sibling``."""
        ...

    async def close(self) -> None:
        """End the sandbox. Never raises, and may be called twice."""
        ...


@runtime_checkable
class SandboxProvider(Protocol):
    """Creates sandboxes."""

    async def open(self, task: Task, deadline_s: float | None = None) -> Sandbox:
        """Open a sandbox for ``task``, which the caller closes.

        Raises SandboxStartError, and UserError if the task needs what the provider does not have.
        """
        ...


class SandboxGroup(NamedTuple):
    """Sandboxes that are only useful together: none starts before there is a slot for all."""

    name: str
    """Name in all requests."""
    size: int


@asynccontextmanager
async def open_sandbox(
    provider: SandboxProvider, task: Task, deadline_s: float | None = None
) -> AsyncGenerator[Sandbox]:
    """Open a sandbox and close it at the end of the block."""
    sandbox = await provider.open(task, deadline_s)
    try:
        yield sandbox
    finally:
        await sandbox.close()


class LocalSandbox:
    """A session of a pool in this process, with the task that it was opened for."""

    def __init__(
        self, pool: SandboxPool, session: SandboxSession, task: Task, commands: Sequence[str] = (), step: int = 0
    ) -> None:
        """``commands`` are those that the agent has run in it before; ``step`` is the number of the task's step that is
        played."""
        self._pool, self._session, self._task = pool, session, task
        self._step = task.in_steps[step]
        self._tools = ToolContext(session, COMMAND_TIMEOUT_S)
        self._commands = [*commands]
        """Commands that the agent has run through this process."""
        self._closed = False

    @property
    def alive(self) -> bool:
        return self._session.alive

    @property
    def container(self) -> str:
        return self._session.container

    @property
    def session(self) -> SandboxSession:
        """The session itself, for callers in this process that need more than the interface."""
        return self._session

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        self._commands.append(command)
        return await self._session.run(command, timeout_s)

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        await self._session.write_files(files, mode=mode)

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        try:
            return await self._session.read_file(path, max_bytes)
        except FileTooLarge as error:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path) from error

    async def read_tree(self, path: str, max_bytes: int = MAX_TREE_BYTES) -> Mapping[str, bytes]:
        try:
            return await self._session.read_tree(path, max_bytes=max_bytes)
        except FileTooLarge as error:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path) from error

    async def fork(self, deadline_s: float | None = None) -> LocalSandbox:
        """Open a second sandbox with this one's files; see :meth:`SandboxPool.fork`."""
        copy = await self._pool.fork(self._session, deadline_s)
        return LocalSandbox(self._pool, copy, self._task, self._commands)

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        self._commands.append(command_text(arguments))
        return await call_tool(self._tools, name, arguments)

    @asynccontextmanager
    async def listen(self, port: int) -> AsyncGenerator[socket.socket]:
        """Listen in the sandbox; see :meth:`sandbox.providers.pool_sandbox.AgentSandbox.listen`."""
        with await listen_in_container(self._session.engine, self._session.container, port) as listener:
            yield listener

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run the program of an agent; see :meth:`sandbox.providers.pool_sandbox.AgentSandbox.run_agent`."""
        return await self._session.shell.run_while(command, remaining_s, on_output)

    async def begin_step(self, number: int) -> None:
        """Begin a step of the task; see :meth:`sandbox.providers.pool_sandbox.PoolSandbox.begin_step`."""
        step = self._task.in_steps[number]
        await self._session.begin_step(step)
        self._step = step

    async def grade(self, timeout_s: float | None = None, commands: Sequence[str] = ()) -> GradeResult:
        return await grade_sandbox(self._session, self._step, timeout_s, [*self._commands, *commands])

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._pool.close(self._session)


class LocalProvider:
    """Sandboxes of a pool in this process."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool

    async def open(
        self, task: Task, deadline_s: float | None = None, programs: AgentPrograms | None = None
    ) -> LocalSandbox:
        """Open a sandbox; see :class:`SandboxProvider` and :meth:`sandbox.pool.sandbox_pool.SandboxPool.open`."""
        session = await self.pool.open(task, deadline_s, programs)
        return LocalSandbox(self.pool, session, task)

    async def adopt(self, container: str, task: Task, step: int = 0) -> LocalSandbox:
        """Take over a container that an earlier process of this pool left running, at a step of its task. Raises
        SandboxLost."""
        session = await self.pool.adopt(container, task, step=step)
        return LocalSandbox(self.pool, session, task, step=step)

    async def containers(self) -> frozenset[str]:
        """Return the ids of this pool's containers, in any state and from any process."""
        found = await self.pool.engine.containers({POOL_LABEL: self.pool.settings.name})
        return frozenset(each.id for each in found)

    async def remove_orphans(self) -> int:
        """Remove what this pool does not use; see :meth:`SandboxPool.remove_orphans`."""
        return await self.pool.remove_orphans()

    async def images(self) -> tuple[str, ...]:
        """Return the names of the images that the daemon has. Raises DockerEngineError."""
        return await list_image_names(self.pool.engine)

    def agent_programs(self) -> tuple[str, ...]:
        """Return the agents' programs that sandboxes can have, as folders of longshore's home."""
        folders = (self.pool.host.home / AGENT_PROGRAMS_FOLDER).glob("[!.]*")
        return tuple(sorted(f"{AGENT_PROGRAMS_FOLDER}/{each.name}" for each in folders))

    @property
    def can_listen(self) -> bool:
        """True if this process can listen in the sandboxes."""
        return can_listen_in_containers(self.pool.engine)

    def wait_s(self) -> float:
        """Return the estimated seconds until a new start begins."""
        return self.pool.wait_s()

    def statistics(self) -> PoolStatistics:
        """Return the pool's counts."""
        return self.pool.statistics()


async def list_image_names(engine: DockerEngine) -> tuple[str, ...]:
    """List the names of the images that the daemon has. Raises DockerEngineError."""

    async def call() -> tuple[str, ...]:
        found: list[dict[str, Any]] = await engine.docker.images.list()  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return tuple(sorted({name for image in found for name in cast("list[str]", image.get("RepoTags") or [])}))

    return await call_with_retries("list images", call, BUSY_STATUSES)
