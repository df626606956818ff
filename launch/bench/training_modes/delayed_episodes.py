"""Episodes with a delay: the first command of each training episode sleeps in the sandbox's shell.

Evaluations are not delayed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from actors.rollout.grading import EpisodeContext
from actors.rollout.terminal import EpisodeGrade, EpisodeTerminal, ToolCallResult
from actors.workers.episode_runner import EpisodeRunner
from launch.bench.training_modes.tool_delays import ToolDelays
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest, Trajectory
from sandbox.tools.shell_only import SHELL_EXEC

DELAYS_VARIABLE = "LONGSHORE_BENCH_WAITS"
"""Environment variable that holds the workers' :class:`ToolDelays`."""


@dataclass(slots=True)
class DelayedTerminal:
    """A terminal whose first command sleeps before it runs."""

    inner: EpisodeTerminal
    delay_s: float
    """Seconds to sleep; 0 after it has slept."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        command = arguments.get("command")
        if name == SHELL_EXEC.name and isinstance(command, str) and self.delay_s:
            arguments = {**arguments, "command": f"sleep {self.delay_s:.3f}\n{command}"}
            self.delay_s = 0.0
        return await self.inner.call(name, arguments, on_output)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        return await self.inner.grade(last_reply)


def delay_first_command(request: RolloutRequest, terminal: EpisodeTerminal, delays: ToolDelays) -> EpisodeTerminal:
    """Return a delayed terminal for the episode of ``request``."""
    if request.purpose != TRAIN_PURPOSE:
        return terminal
    return DelayedTerminal(terminal, delays.draw_delay_s(request.task, request.sample))


class DelayedEpisodeRunner(EpisodeRunner):
    async def run_agent(self, context: EpisodeContext, terminal: EpisodeTerminal) -> Trajectory:
        delays = ToolDelays.from_json(os.environ[DELAYS_VARIABLE])
        return await super().run_agent(context, delay_first_command(context.request, terminal, delays))
