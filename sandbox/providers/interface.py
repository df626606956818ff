"""One interface to sandboxes, wherever they are: in this process (the library), behind a pool server, behind a router.

:class:`LocalProvider` is the library's; :class:`sandbox.providers.remote.RemotePool` speaks to a server.  What one does the other
does: the conformance suite (tests/integration/sandbox) runs the same cases on all.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.docker.retry import call_with_retries
from sandbox.grading.grader import GradeResult, grade_sandbox
from sandbox.grading.suspicions import command_text
from sandbox.pool.sandbox_pool import PoolStatistics, SandboxPool
from sandbox.session.files import MAX_FILE_BYTES, MAX_TREE_BYTES, FileTooLarge
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task
from sandbox.tools import ToolContext, ToolResult, call_tool

COMMAND_TIMEOUT_S = 20.0
"""How long an agent's blocking command may take: SETA's and OpenClaw's limit."""


class Sandbox(Protocol):
    """One session.  Every method raises SandboxLost (infrastructure) or SandboxDestroyed (the agent's doing) when the
    container is gone."""

    @property
    def alive(self) -> bool: ...

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        """Evaluate in the persistent shell.  Raises ShellBusy while a command that a tool has left to itself is there,
        ValueError for a command with NUL bytes or of more than 1 MiB."""
        ...

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        """Absolute path → content; folders are made.  Raises OSError, ValueError for a path that is not absolute."""
        ...

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """A regular file.  Raises OSError: ENOENT, EISDIR, ELOOP for a link, EINVAL for anything else, EFBIG."""
        ...

    async def read_tree(self, path: str, max_bytes: int = MAX_TREE_BYTES) -> Mapping[str, bytes]:
        """The regular files below a folder, by their relative paths.  Raises OSError: ENOENT, EFBIG, EBUSY while tests
        run, EINTR where they begin meanwhile, ETIME for what takes too long."""
        ...

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        """One of SETA's six tools, of which OpenClaw's four are some: its errors are text, also over ``arguments`` that
        are no object with a name for each."""
        ...

    async def grade(self, timeout_s: float | None = None) -> GradeResult:
        """Run the task's hidden tests, at its level.  The shell does not survive this, except at ``sibling``."""
        ...

    async def close(self) -> None:
        """End it.  Never raises, and may be called twice."""
        ...


@runtime_checkable
class SandboxProvider(Protocol):
    async def open(self, task: Task, deadline_s: float | None = None) -> Sandbox:
        """A sandbox for ``task``, which the caller closes.  Raises SandboxStartError, and UserError where
        the task needs what cannot be given."""
        ...


class SandboxGroup(NamedTuple):
    """Of sandboxes that are of use together alone: none of them is begun before there is a place for all."""

    name: str
    """Names them, wherever they are asked for."""
    size: int


@asynccontextmanager
async def open_sandbox(
    provider: SandboxProvider, task: Task, deadline_s: float | None = None
) -> AsyncGenerator[Sandbox]:
    """``async with acquired(provider, task) as sandbox: ...``"""
    sandbox = await provider.open(task, deadline_s)
    try:
        yield sandbox
    finally:
        await sandbox.close()


class LocalSandbox:
    """A session of a pool in this process, with the task it was opened for."""

    def __init__(
        self,
        pool: SandboxPool,
        session: SandboxSession,
        task: Task,
        command_timeout_s: float,
        commands: Sequence[str] = (),
    ) -> None:
        """``commands``: what the agent has asked for in it before."""
        self._pool, self._session, self._task = pool, session, task
        self._tools = ToolContext(session, command_timeout_s)
        self._commands = [*commands]
        """What the agent asked for, as far as it asked this process."""
        self._closed = False

    @property
    def alive(self) -> bool:
        return self._session.alive

    @property
    def container(self) -> str:
        return self._session.container

    @property
    def session(self) -> SandboxSession:
        """For who is in this process and wants more than any provider's sandbox does."""
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
        """A second one with this one's files, for who wants to go on from here in two ways: see
        :meth:`SandboxPool.fork`."""
        copy = await self._pool.fork(self._session, deadline_s)
        return LocalSandbox(self._pool, copy, self._task, self._tools.command_timeout_s, self._commands)

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        self._commands.append(command_text(arguments))
        return await call_tool(self._tools, name, arguments)

    async def grade(self, timeout_s: float | None = None) -> GradeResult:
        return await grade_sandbox(self._session, self._task, timeout_s, self._commands)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._pool.close(self._session)


class LocalProvider:
    """The library: sandboxes of a pool in this process."""

    def __init__(self, pool: SandboxPool, command_timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self.pool, self._command_timeout_s = pool, command_timeout_s

    async def open(self, task: Task, deadline_s: float | None = None) -> LocalSandbox:
        session = await self.pool.open(task, deadline_s)
        return LocalSandbox(self.pool, session, task, self._command_timeout_s)

    async def adopt(self, container: str, task: Task) -> LocalSandbox:
        """A container that an earlier process of this pool left running.  Raises SandboxLost."""
        session = await self.pool.adopt(container, task)
        return LocalSandbox(self.pool, session, task, self._command_timeout_s)

    async def containers(self) -> frozenset[str]:
        """Ids of this pool's containers, in any state, whoever started them."""
        found = await self.pool.engine.containers({POOL_LABEL: self.pool.settings.pool})
        return frozenset(each.id for each in found)

    async def remove_strays(self) -> int:
        """See :meth:`SandboxPool.remove_strays`."""
        return await self.pool.remove_strays()

    async def images(self) -> tuple[str, ...]:
        """Names of the images that the daemon has.  Raises EngineError."""
        return await list_image_names(self.pool.engine)

    def wait_s(self) -> float:
        return self.pool.wait_s()

    def statistics(self) -> PoolStatistics:
        return self.pool.statistics()


async def list_image_names(engine: DockerEngine) -> tuple[str, ...]:
    async def call() -> tuple[str, ...]:
        found: list[dict[str, Any]] = await engine.docker.images.list()  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        return tuple(sorted({name for image in found for name in cast("list[str]", image.get("RepoTags") or [])}))

    return await call_with_retries("list images", call, frozenset({500, 502, 503}))
