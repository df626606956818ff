"""A sandbox session as an episode sees it: tool calls and a grade, failures sorted into policy and infrastructure."""

from __future__ import annotations

import time
from dataclasses import dataclass

from actors.episode import Graded, SandboxGone, ToolOutcome
from sandbox.errors import SandboxDestroyed
from sandbox.grader import grade
from sandbox.session import SandboxSession
from sandbox.tasks import Task
from sandbox.tools import ShellTools


@dataclass(slots=True)
class SandboxTerminal:
    session: SandboxSession
    task: Task
    command_timeout_s: float

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutcome:
        tools = ShellTools(self.session, self.command_timeout_s)
        try:
            result = await tools.call(name, arguments)
        except SandboxDestroyed as error:
            raise SandboxGone(str(error)) from error
        return ToolOutcome(result.text, result.exit_code, result.ms)

    async def grade(self) -> Graded:
        begun = time.monotonic()
        try:
            result = await grade(self.session, self.task, self.task.test_timeout_s)
        except SandboxDestroyed as error:
            raise SandboxGone(str(error)) from error
        return Graded(result.tests, result.pass_ratio, result.all_passed, (time.monotonic() - begun) * 1000)
