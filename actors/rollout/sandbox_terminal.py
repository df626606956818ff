"""A sandbox as an episode sees it: tool calls and a grade, with its loss attributed to the agent or to infrastructure.

A sandbox of this process's own pool is used through its session.  A sandbox of any other provider is used through the
provider's interface, and the provider grades it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from actors.rollout.reply_program import find_program_at_end
from actors.rollout.terminal import EpisodeGrade, SandboxDestroyedByAgent, TerminalLimits, ToolCallResult
from protocol.errors import UserError
from sandbox.browser.browser import SandboxBrowser
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, SandboxVanished, TaskFault
from sandbox.grading.canaries import CanaryVerdict
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.steps import StepsGrade
from sandbox.grading.suspicions import command_text
from sandbox.providers.interface import LocalSandbox, Sandbox
from sandbox.providers.pool_sandbox import AgentSandbox, PoolSandbox
from sandbox.providers.remote_tools import ProviderToolTarget, call_remote_tool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.network_policy import lacks_network
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, PortableToolContext, ToolContext, ToolResult, Toolset, call_tool, needs_browser


class HarnessExit(NamedTuple):
    """The end of a harness process."""

    exit_code: int | None
    """The exit code that the sandbox's shell reported; None if the harness was killed."""
    output: str
    timed_out: bool = False


@dataclass(slots=True)
class SandboxTerminal:
    """An :class:`actors.rollout.terminal.EpisodeTerminal` in any provider's sandbox."""

    sandbox: Sandbox
    task: Task
    limits: TerminalLimits
    vanished_before: bool = False
    """An earlier attempt lost its sandbox for an unknown reason; if this one does too, the agent is blamed."""
    tools: Toolset = field(default_factory=lambda: SHELL_ONLY, kw_only=True)
    """The tools that the agent may call."""
    opening: ToolResult | None = field(default=None, init=False)
    """The page that the agent's browser shows at first; None without a browser."""
    _browser: SandboxBrowser | None = field(default=None, init=False)
    _commands: list[str] = field(default_factory=list[str])
    """The text of each tool call so far."""
    _grades: StepsGrade = field(init=False)

    def __post_init__(self) -> None:
        self._grades = StepsGrade(self.task)

    @property
    def session(self) -> SandboxSession:
        """The session of a sandbox of this process's pool.  Raises TypeError for any other."""
        if not isinstance(self.sandbox, LocalSandbox):
            raise TypeError("the sandbox is not of this process's pool")
        return self.sandbox.session

    @property
    def pool_sandbox(self) -> PoolSandbox:
        """The sandbox, which is one of a pool here or behind a pool server.  Raises UserError for any other."""
        if not isinstance(self.sandbox, PoolSandbox):
            raise UserError(
                f"task {self.task.id} has steps, which only sandboxes of a pool play: leave it out (data.task_ids), or "
                "set sandbox.provider = 'docker' or 'pool'"
            )
        return self.sandbox

    @property
    def agent_sandbox(self) -> AgentSandbox:
        """The sandbox, which can run a harness.  Raises UserError for one that cannot."""
        if not isinstance(self.sandbox, AgentSandbox):
            raise UserError(
                "a harness (agent.harness) runs in no sandbox of this provider: leave it out, or set "
                "sandbox.provider = 'docker', 'pool' or 'daytona'"
            )
        return self.sandbox

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self._commands.append(command_text(arguments))
        begun = time.perf_counter()
        with self._attribute_loss():
            result = await self._call_tool(name, arguments, on_output)
        # a tool that only waits for another command reports no time of its own
        ms = result.ms or (time.perf_counter() - begun) * 1000
        return ToolCallResult(
            result.text, result.raw, result.exit_code, ms, timed_out=result.timed_out, picture=result.picture
        )

    async def _call_tool(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolResult:
        limits = (self.limits.command_s, self.limits.observation_chars, on_output)
        if isinstance(self.sandbox, LocalSandbox):
            context = ToolContext(self.sandbox.session, *limits, browser=self._browser)
            return await call_tool(context, name, arguments, self.tools)
        target = ProviderToolTarget(self.sandbox, self.task.workdir or "/")
        return await call_remote_tool(self.sandbox, PortableToolContext(target, *limits), name, arguments, self.tools)

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> HarnessExit:
        """Run a harness until it ends or ``remaining_s()`` is not above 0.  Raises as :attr:`agent_sandbox` does."""
        self._commands.append("")  # the run's own command; those of its calls are recorded when they are known
        with self._attribute_loss():
            result = await self.agent_sandbox.run_agent(command, remaining_s, on_output)
        return HarnessExit(result.exit_code, result.output, result.timed_out)

    def record_commands(self, commands: Iterable[str]) -> None:
        """Record the commands that a harness ran, which are read for signs of cheating."""
        self._commands.extend(commands)

    async def begin(self) -> None:
        """Prepare the sandbox for the task's first step, and open the browser if the agent has one.

        Raises SandboxStartError, and UserError for steps in a sandbox of no pool, or a browser in one that is not of
        this process's."""
        await self._begin_steps()
        if needs_browser(self.tools):
            await self._open_browser()

    @property
    def shown_task(self) -> Task:
        """The task, with the page that the agent sees at first in its (first step's) instruction."""
        return self.task if self.opening is None else with_opening_page(self.task, self.opening.text)

    def show_opening(self, on_picture: Callable[[bytes], None]) -> None:
        """Pass on a picture of the page that the browser began with."""
        if self.opening is not None and self.opening.picture is not None:
            on_picture(self.opening.picture)

    async def _open_browser(self) -> None:
        if not isinstance(self.sandbox, LocalSandbox):
            raise UserError(
                "agent.toolset = 'browser' needs sandboxes of this machine: set sandbox.provider = 'docker', or choose "
                "another toolset"
            )
        budget = self.limits.observation_chars
        try:
            self._browser, shown = await SandboxBrowser.open(self.session, self.task.start_url, budget)
        except (SandboxDestroyed, SandboxLost) as error:
            raise SandboxStartError(f"the browser did not start: {error}") from error
        except SandboxStartError as error:
            if not lacks_network(self.task):
                raise
            raise SandboxStartError(
                f"{error} (the task asks for a network that it does not get: --set sandbox.network=task gives it)"
            ) from error
        self.opening = ToolResult(shown.text, raw=shown.text, picture=shown.picture)

    async def _begin_steps(self) -> None:
        if not self.task.steps:
            return
        try:
            await self.pool_sandbox.begin_step(0)
        except (OSError, TimeoutError, SandboxDestroyed, SandboxLost) as error:
            raise SandboxStartError(f"the task's first step did not begin: {error}") from error

    async def grade(self, last_reply: str) -> EpisodeGrade:
        step = self.task.in_steps[len(self._grades.played)]
        limit_s = min(step.test_timeout_s, self.limits.grade_s)
        with self._attribute_loss():
            await self._write_reply_program(last_reply)
            if isinstance(self.sandbox, AgentSandbox):
                result = await self.sandbox.grade(limit_s, self._commands)
            else:
                result = await self.sandbox.grade(limit_s)
            self._grades = self._grades.with_step(result)
            goes_on = self._grades.next_step is not None and await self._begin_next_step()
        grade = _to_episode_grade(self._grades.total)
        return replace(grade, step_rewards=self._grades.step_rewards, goes_on=goes_on)

    async def _write_reply_program(self, last_reply: str) -> None:
        path = self.task.reply_program
        if path and (program := find_program_at_end(last_reply)) is not None:
            with contextlib.suppress(OSError):  # the agent has put something else there, which its tests will see
                await self.sandbox.write_files({path: program.encode(errors="replace")})

    async def _begin_next_step(self) -> bool:
        try:
            await self.pool_sandbox.begin_step(len(self._grades.played))
        except (TaskFault, OSError) as error:
            self._grades = self._grades.with_failed_start(str(error))
            return False
        return True

    @contextlib.contextmanager
    def _attribute_loss(self) -> Generator[None]:
        """Raise SandboxDestroyedByAgent if the agent caused the loss; let infrastructure's errors through."""
        try:
            yield
        except SandboxDestroyed as error:
            raise SandboxDestroyedByAgent(str(error)) from error
        except SandboxVanished as error:
            if not (self._commands and self.vanished_before):
                raise
            raise SandboxDestroyedByAgent(f"{error}, for the second time in this sample") from error


def with_opening_page(task: Task, page: str) -> Task:
    """Return the task with the text of a page at the end of its (first step's) instruction."""
    first = tuple(replace(step, instruction=f"{step.instruction}\n\n{page}") for step in task.steps[:1])
    return replace(task, instruction=f"{task.instruction}\n\n{page}", steps=(*first, *task.steps[1:]))


def _to_episode_grade(result: GradeResult) -> EpisodeGrade:
    suspicious = [f"call {each.command} touched {each.touched}: {each.excerpt}" for each in result.suspicions]
    if result.canaries is not CanaryVerdict.TRUE:
        suspicious.append(f"its tests earned nothing: {result.canaries.value}")
    return EpisodeGrade(
        tuple(test.result for test in result.tests),
        result.pass_ratio,
        result.all_passed,
        result.ms,
        tuple(suspicious),
        result.score,
        result.isolation.value,
    )


@contextlib.asynccontextmanager
async def hold_terminal(
    opening: Awaitable[Sandbox],
    task: Task,
    limits: TerminalLimits,
    tools: Toolset,
    *,
    vanished_before: bool = False,
    on_slow_cleanup: Callable[[Sandbox], None],
) -> AsyncGenerator[SandboxTerminal]:
    """Hold the sandbox that is being opened, and its terminal, for the block.

    Raises SandboxStartError if there is none in time, and as :meth:`SandboxTerminal.begin`.  If its removal takes
    longer than ``limits.cleanup_s``, it continues in the background, so the finished episode is kept.  If the block and
    the removal fail, the block's error is raised."""
    try:
        async with asyncio.timeout(limits.acquire_s):
            sandbox = await opening
    except TimeoutError as error:
        raise SandboxStartError(f"no sandbox within {limits.acquire_s:g} s") from error

    async def close() -> None:
        try:
            async with asyncio.timeout(limits.cleanup_s):
                await sandbox.close()
        except TimeoutError:
            on_slow_cleanup(sandbox)

    try:
        terminal = SandboxTerminal(sandbox, task, limits, vanished_before, tools=tools)
        await terminal.begin()
        yield terminal
    except BaseException:
        with contextlib.suppress(Exception):
            await close()
        raise
    await close()
