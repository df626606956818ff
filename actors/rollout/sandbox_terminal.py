"""A sandbox session as an episode sees it: tool calls and a grade, failures sorted into policy and infrastructure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from actors.rollout.episode import EpisodeGrade, SandboxDestroyedByAgent, ToolCallResult
from actors.rollout.harness import HarnessExit
from sandbox.errors import SandboxDestroyed, SandboxVanished
from sandbox.grading.grader import GradeResult, grade_sandbox
from sandbox.grading.suspicions import command_text
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, ToolContext, Toolset, call_tool

_LOOK_S = 0.5
"""Between two looks at what a harness has left of its time."""


@dataclass(slots=True)
class SandboxTerminal:
    session: SandboxSession
    task: Task
    command_timeout_s: float
    grade_timeout_s: float
    """A task may allow its tests less."""
    observation_chars: int
    vanished_before: bool = False
    """An earlier attempt lost its sandbox for no known cause: if this one does too, the agent did it."""
    tools: Toolset = field(default_factory=lambda: SHELL_ONLY, kw_only=True)
    """What the agent may call."""
    _commands: list[str] = field(default_factory=list[str])
    """What the agent asked for, call by call."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self._commands.append(command_text(arguments))
        begun = time.perf_counter()
        with self._attribute_loss():
            context = ToolContext(self.session, self.command_timeout_s, self.observation_chars, on_output)
            result = await call_tool(context, name, arguments, self.tools)
        ms = result.ms or (time.perf_counter() - begun) * 1000  # a tool that waits for what others run says none
        return ToolCallResult(result.text, result.raw, result.exit_code, ms, timed_out=result.timed_out)

    async def run_agent(
        self, command: str, left_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> HarnessExit:
        """See :class:`actors.rollout.harness.Place`."""
        self._commands.append(command)
        shell = self.session.shell
        with self._attribute_loss():
            shell.start(command, on_output)
            try:
                while left_s() > 0 and not await shell.wait_until_ended(_LOOK_S):
                    continue
                if timed_out := not shell.has_result:
                    await shell.interrupt()
            except BaseException:  # cancelled, or the container is gone
                shell.abandon()
                raise
        result = shell.finish(timed_out=timed_out)
        return HarnessExit(result.exit_code, result.output, timed_out)

    async def grade(self) -> EpisodeGrade:
        with self._attribute_loss():
            limit_s = min(self.task.test_timeout_s, self.grade_timeout_s)
            result = await grade_sandbox(self.session, self.task, limit_s, self._commands)
        return to_episode_grade(result)

    def _attribute_loss(self) -> contextlib.AbstractContextManager[None]:
        return attribute_sandbox_loss(acted=bool(self._commands), vanished_before=self.vanished_before)


@contextlib.contextmanager
def attribute_sandbox_loss(*, acted: bool, vanished_before: bool) -> Generator[None]:
    """Name the loss of a sandbox for what it is: the doing of an agent that has ``acted`` in it, or infrastructure's
    (passed on).  ``vanished_before``: an earlier attempt lost its sandbox for no known cause."""
    try:
        yield
    except SandboxDestroyed as error:
        raise SandboxDestroyedByAgent(str(error)) from error
    except SandboxVanished as error:
        if not (acted and vanished_before):
            raise
        raise SandboxDestroyedByAgent(f"{error}, for the second time in this sample") from error


def to_episode_grade(result: GradeResult) -> EpisodeGrade:
    """A grade as an episode has it."""
    return EpisodeGrade(
        tuple(test.result for test in result.tests),
        result.pass_ratio,
        result.all_passed,
        result.ms,
        tuple(f"call {each.command} touched {each.touched}: {each.excerpt}" for each in result.suspicions),
        result.score,
    )
