"""A machine without containers for the pool server's tests: it remembers what was asked and answers at once, or when
told to."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from sandbox.errors import SandboxLost
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import Isolation
from sandbox.grading.results.verdict import GradedTest, GradingOutcome
from sandbox.pool.sandbox_pool import PoolStatistics
from sandbox.session.files import MAX_FILE_BYTES
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import GradingLevel, Task
from sandbox.tools import ToolResult
from sandbox.tools.tool import ToolArguments


class FakeSandbox:
    """Echoes; ``hold`` keeps commands waiting until it is set, ``fail`` is raised instead."""

    def __init__(self, provider: FakeProvider, container: str, task: Task) -> None:
        self.provider, self.container, self.task = provider, container, task
        self.calls: list[str] = []
        self.files: dict[str, bytes] = {}
        self.may_finish: asyncio.Event | None = None
        self.error: Exception | None = None
        self.closed = False
        self.grades = 0

    @property
    def alive(self) -> bool:
        return not self.closed

    async def _record_call(self, what: str) -> None:
        self.calls.append(what)
        if self.may_finish is not None:
            await self.may_finish.wait()
        if self.error is not None:
            raise self.error
        if self.closed:
            raise SandboxLost("the session was closed")

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        if "\0" in command:
            raise ValueError("a command has no NUL byte")
        await self._record_call(command)
        return CommandResult(f"{command}\n", 0, 0, timed_out=False, ms=0.1, shell_restarted=False)

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        if any(not path.startswith("/") for path in files):
            raise ValueError("not an absolute path")
        self.files.update(files)

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path][:max_bytes]

    async def read_tree(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> Mapping[str, bytes]:
        return {name.removeprefix(f"{path}/"): data for name, data in self.files.items() if name.startswith(f"{path}/")}

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        command = cast("ToolArguments", arguments).get("command", "")
        await self._record_call(f"{name} {command}")
        return ToolResult(f"ran {len(self.calls)}", 0, 0.1)

    async def grade(self, timeout_s: float | None = None) -> GradeResult:
        await self._record_call("grade")
        self.grades += 1
        return GradeResult(
            (GradedTest("a", GradingOutcome.PASSED),),
            None,
            "log",
            GradingLevel.SAME,
            Isolation.TOOLCHAIN,
            timed_out=False,
            ms=1.0,
        )

    async def close(self) -> None:
        self.closed = True
        self.provider.running.discard(self.container)


@dataclass
class FakeProvider:
    running: set[str] = field(default_factory=set)
    """Containers that exist."""
    opened: list[FakeSandbox] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    image_names: tuple[str, ...] = ("base:1",)
    """Names of the provider's images."""
    backlog_s: float = 0.0
    open_error: Exception | None = None
    """Raised instead of a start."""
    may_open: asyncio.Event | None = None
    adopt_together: asyncio.Barrier | None = None
    """Nothing is taken over before so many are asked for at once."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def open(self, task: Task, deadline_s: float | None = None) -> FakeSandbox:
        if self.may_open is not None:
            await self.may_open.wait()
        if self.open_error:
            raise self.open_error
        return self._new_sandbox(f"container-{next(self._numbers)}", task)

    async def adopt(self, container: str, task: Task) -> FakeSandbox:
        self.adopted.append(container)
        if self.adopt_together is not None:
            await self.adopt_together.wait()
        return self._new_sandbox(container, task)

    def _new_sandbox(self, container: str, task: Task) -> FakeSandbox:
        sandbox = FakeSandbox(self, container, task)
        self.opened.append(sandbox)
        self.running.add(container)
        return sandbox

    async def containers(self) -> frozenset[str]:
        return frozenset(self.running)

    async def remove_orphans(self) -> int:
        orphans = self.running - {each.container for each in self.opened}
        self.removed += sorted(orphans)
        self.running -= orphans
        return len(orphans)

    async def images(self) -> tuple[str, ...]:
        return self.image_names

    def wait_s(self) -> float:
        return self.backlog_s

    def statistics(self) -> PoolStatistics:
        live = sum(not each.closed for each in self.opened)
        return PoolStatistics(8, live, 0, 0, len(self.opened), 0, 0, 0, 1.0, 0, 0, 2)
