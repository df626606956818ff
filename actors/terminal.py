"""A sandbox session as an episode sees it: tool calls and a grade, failures sorted into policy and infrastructure."""

from __future__ import annotations

from dataclasses import dataclass

from actors.episode import Graded, SandboxGone, ToolOutcome
from sandbox.errors import SandboxDestroyed
from sandbox.grader import grade
from sandbox.session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools import ToolContext, call_tool


@dataclass(slots=True)
class SandboxTerminal:
    session: SandboxSession
    task: Task
    command_timeout_s: float
    grade_timeout_s: float
    """A task may allow its tests less."""
    observation_chars: int

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutcome:
        try:
            context = ToolContext(self.session, self.command_timeout_s, self.observation_chars)
            result = await call_tool(context, name, arguments)
        except SandboxDestroyed as error:
            raise SandboxGone(str(error)) from error
        return ToolOutcome(result.text, result.raw, result.exit_code, result.ms)

    async def grade(self) -> Graded:
        try:
            result = await grade(self.session, self.task, min(self.task.test_timeout_s, self.grade_timeout_s))
        except SandboxDestroyed as error:
            raise SandboxGone(str(error)) from error
        return Graded(result.tests, result.pass_ratio, result.all_passed, result.ms)
