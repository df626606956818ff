"""A run's actors with workers that delay each training episode once: its first command sleeps in the sandbox's shell.

Evaluations are not delayed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from actors.engines.interface import Engine
from actors.rollout.terminal import EpisodeGrade, EpisodeTerminal, ToolCallResult
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker
from actors.workers.settings import WorkerSpec
from launch.actor_group.actor_classes import ActorClasses
from launch.bench.training_modes.tool_delays import ToolDelays
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest
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

    async def grade(self) -> EpisodeGrade:
        return await self.inner.grade()


def delay_first_command(request: RolloutRequest, terminal: EpisodeTerminal, delays: ToolDelays) -> EpisodeTerminal:
    """Return a delayed terminal for the episode of ``request``."""
    if request.purpose != TRAIN_PURPOSE:
        return terminal
    return DelayedTerminal(terminal, delays.draw_delay_s(request.task, request.sample))


class DelayedWorker(RolloutWorker):
    """A worker whose training episodes are delayed."""

    def __init__(
        self, spec: WorkerSpec, scheduler: Remote[RolloutScheduler], engines: tuple[Remote[Engine], ...]
    ) -> None:
        delays = ToolDelays.from_json(os.environ[DELAYS_VARIABLE])
        super().__init__(
            spec, scheduler, engines, lambda request, terminal: delay_first_command(request, terminal, delays)
        )


DELAYED_ACTOR_CLASSES = ActorClasses(worker=DelayedWorker)
