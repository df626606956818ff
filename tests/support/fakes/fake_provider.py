"""A machine without containers for the pool server's tests: it remembers what was asked and answers at once, or when
told to."""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from sandbox.agent_programs import AgentPrograms
from sandbox.errors import SandboxLost
from sandbox.grading.canaries import CanaryVerdict
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import Isolation
from sandbox.grading.results.verdict import GradedTest, GradingOutcome
from sandbox.pool.sandbox_pool import PoolStatistics
from sandbox.session.files import MAX_FILE_BYTES
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tools import ToolResult
from sandbox.tools.tool import ToolArguments


class FakeSandbox:
    """Echoes; ``hold`` keeps commands waiting until it is set, ``fail`` is raised instead."""

    def __init__(self, provider: FakeProvider, container: str, task: Task) -> None:
        self.provider, self.container, self.task = provider, container, task
        self.calls: list[str] = []
        self.files: dict[str, bytes] = {}
        self.ports: dict[int, int] = {}
        """Port of this machine that stands for each port of the sandbox that somebody listens at."""
        self.may_finish: asyncio.Event | None = None
        self.error: Exception | None = None
        self.closed = False
        self.grades = 0
        self.canaries = CanaryVerdict.TRUE
        """What the canaries of its grades say."""

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

    @asynccontextmanager
    async def listen(self, port: int) -> AsyncGenerator[socket.socket]:
        """Listen on a free port of this machine, the sandbox's own."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.ports[port] = listener.getsockname()[1]
            yield listener
        del self.ports[port]

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run until no time remains, or ``may_finish`` is set, if there is one."""
        self.calls.append(command)
        for _ in itertools.count():
            in_time, ended = remaining_s() > 0, self.may_finish is None or self.may_finish.is_set()
            if ended or not in_time:
                break
            await asyncio.sleep(0.01)
        return CommandResult("ran", 0, 0, timed_out=not in_time, ms=0.1, shell_restarted=False)

    async def begin_step(self, number: int) -> None:
        await self._record_call(f"step {number}")

    async def grade(self, timeout_s: float | None = None, commands: Sequence[str] = ()) -> GradeResult:
        await self._record_call("\n".join(["grade", *commands]))
        self.grades += 1
        return GradeResult(
            (GradedTest("a", GradingOutcome.PASSED),),
            {},
            "log",
            GradingLevel.SAME,
            Isolation.TOOLCHAIN,
            timed_out=False,
            ms=1.0,
            canaries=self.canaries,
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
    programs: tuple[str, ...] = ()
    """Agents' programs that its sandboxes can have."""
    can_listen: bool = True
    given: list[AgentPrograms] = field(default_factory=list[AgentPrograms])
    """Programs that sandboxes were opened with."""
    backlog_s: float = 0.0
    open_error: Exception | None = None
    """Raised instead of a start."""
    may_open: asyncio.Event | None = None
    adopt_together: asyncio.Barrier | None = None
    """Nothing is taken over before so many are asked for at once."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def open(
        self, task: Task, deadline_s: float | None = None, programs: AgentPrograms | None = None
    ) -> FakeSandbox:
        if self.may_open is not None:
            await self.may_open.wait()
        if self.open_error:
            raise self.open_error
        if programs is not None:
            self.given.append(programs)
        return self._new_sandbox(f"container-{next(self._numbers)}", task)

    async def adopt(self, container: str, task: Task, step: int = 0) -> FakeSandbox:
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

    def agent_programs(self) -> tuple[str, ...]:
        return self.programs

    def wait_s(self) -> float:
        return self.backlog_s

    def statistics(self) -> PoolStatistics:
        live = sum(not each.closed for each in self.opened)
        return PoolStatistics(8, live, 0, 0, len(self.opened), 0, 0, 0, 1.0, 0, 0, 2)
