"""Any provider's sandbox as an episode sees it: what :mod:`actors.rollout.sandbox_terminal` is to one of this process's pool.

Grading is the provider's, where the sandbox is; so is what an agent has done to arouse suspicion.  A sandbox that its
provider no longer gives, a lease that has ended say, is infrastructure's failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from actors.rollout.episode import EpisodeGrade, ToolCallResult
from actors.rollout.sandbox_terminal import attribute_sandbox_loss, to_episode_grade
from sandbox.providers.interface import Sandbox
from sandbox.providers.remote_tools import ProviderToolTarget, call_remote_tool
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY, PortableToolContext, Toolset


@dataclass(slots=True)
class ProviderTerminal:
    sandbox: Sandbox
    task: Task
    command_timeout_s: float
    grade_timeout_s: float
    """A task may allow its tests less."""
    observation_chars: int
    vanished_before: bool = False
    """An earlier attempt lost its sandbox for no known cause: if this one does too, the agent did it."""
    tools: Toolset = field(default_factory=lambda: SHELL_ONLY, kw_only=True)
    """What the agent may call."""
    _acted: bool = False

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        self._acted = True
        begun = time.perf_counter()
        with attribute_sandbox_loss(acted=True, vanished_before=self.vanished_before):
            ground = ProviderToolTarget(self.sandbox, self.task.workdir)
            context = PortableToolContext(ground, self.command_timeout_s, self.observation_chars, on_output)
            result = await call_remote_tool(self.sandbox, context, name, arguments, self.tools)
        ms = result.ms or (time.perf_counter() - begun) * 1000  # a tool that waits for what others run says none
        return ToolCallResult(result.text, result.raw, result.exit_code, ms, timed_out=result.timed_out)

    async def grade(self) -> EpisodeGrade:
        with attribute_sandbox_loss(acted=self._acted, vanished_before=self.vanished_before):
            return to_episode_grade(await self.sandbox.grade(min(self.task.test_timeout_s, self.grade_timeout_s)))
