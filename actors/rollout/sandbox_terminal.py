"""A sandbox as an episode sees it: tool calls and a grade, with its loss attributed to the agent or to infrastructure.

A sandbox of this process's own pool is used through its session.  A sandbox of any other provider is used through the
provider's interface, and the provider grades it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.rollout.terminal import EpisodeGrade, SandboxDestroyedByAgent, TerminalLimits, ToolCallResult
from sandbox.errors import SandboxDestroyed, SandboxStartError, SandboxVanished
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import grade_sandbox
from sandbox.grading.suspicions import command_text
from sandbox.providers.interface import LocalSandbox, Sandbox
from sandbox.providers.remote_tools import ProviderToolTarget, call_remote_tool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, PortableToolContext, ToolContext, ToolResult, Toolset, call_tool

_POLL_S = 0.5
"""Seconds between two checks of the time that a harness has left."""


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
    _commands: list[str] = field(default_factory=list[str])
    """The text of each tool call so far."""

    @property
    def session(self) -> SandboxSession:
        """The session of a sandbox of this process's pool.  Raises TypeError for any other."""
        if not isinstance(self.sandbox, LocalSandbox):
            raise TypeError("the sandbox is not of this process's pool")
        return self.sandbox.session

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self._commands.append(command_text(arguments))
        begun = time.perf_counter()
        with self._attribute_loss():
            result = await self._call_tool(name, arguments, on_output)
        # a tool that only waits for another command reports no time of its own
        ms = result.ms or (time.perf_counter() - begun) * 1000
        return ToolCallResult(result.text, result.raw, result.exit_code, ms, timed_out=result.timed_out)

    async def _call_tool(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolResult:
        limits = (self.limits.command_s, self.limits.observation_chars, on_output)
        if isinstance(self.sandbox, LocalSandbox):
            return await call_tool(ToolContext(self.sandbox.session, *limits), name, arguments, self.tools)
        context = PortableToolContext(ProviderToolTarget(self.sandbox, self.task.workdir), *limits)
        return await call_remote_tool(self.sandbox, context, name, arguments, self.tools)

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> HarnessExit:
        """Run a harness until it ends or ``remaining_s()`` is not above 0.  Raises as :attr:`session` does."""
        self._commands.append(command)
        shell = self.session.shell
        with self._attribute_loss():
            shell.start(command, on_output)
            try:
                while remaining_s() > 0 and not await shell.wait_until_ended(_POLL_S):
                    continue
                if timed_out := not shell.has_result:
                    await shell.interrupt()
            except BaseException:  # cancelled, or the container is gone
                shell.abandon()
                raise
        result = shell.finish(timed_out=timed_out)
        return HarnessExit(result.exit_code, result.output, timed_out)

    async def grade(self) -> EpisodeGrade:
        limit_s = min(self.task.test_timeout_s, self.limits.grade_s)
        with self._attribute_loss():
            if isinstance(self.sandbox, LocalSandbox):
                result = await grade_sandbox(self.sandbox.session, self.task, limit_s, self._commands)
            else:
                result = await self.sandbox.grade(limit_s)
        return _to_episode_grade(result)

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


def _to_episode_grade(result: GradeResult) -> EpisodeGrade:
    return EpisodeGrade(
        tuple(test.result for test in result.tests),
        result.pass_ratio,
        result.all_passed,
        result.ms,
        tuple(f"call {each.command} touched {each.touched}: {each.excerpt}" for each in result.suspicions),
        result.score,
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

    Raises SandboxStartError if there is none in time.  If its removal takes longer than ``limits.cleanup_s``, it
    continues in the background, so the finished episode is kept.  If the block and the removal fail, the block's error
    is raised."""
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
        yield SandboxTerminal(sandbox, task, limits, vanished_before, tools=tools)
    except BaseException:
        with contextlib.suppress(Exception):
            await close()
        raise
    await close()
