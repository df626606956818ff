"""A run's crew, whose workers let each training episode wait once: its first command sleeps in the sandbox's own shell
before it does anything.  Evaluations do not wait."""

from __future__ import annotations

import os
from collections.abc import Callable

from actors.engines.engine import Engine
from actors.rollout.episode import ToolCallResult
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker, WorkerSpec
from launch.actor_group.actor_classes import ActorClasses
from launch.bench.training_modes.tool_delays import ToolDelays
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools.shell_only import SHELL_EXEC

DELAYS_VARIABLE = "LONGSHORE_BENCH_WAITS"
"""Variable by which workers are told :class:`Waits`."""


class DelayedTerminal(SandboxTerminal):
    delay_s = 0.0
    """Of the first command, which it is yet to run."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        command = arguments.get("command")
        if name == SHELL_EXEC.name and isinstance(command, str) and self.delay_s:
            arguments = {**arguments, "command": f"sleep {self.delay_s:.3f}\n{command}"}
            self.delay_s = 0.0
        return await super().call(name, arguments, on_output)


def delay_first_command(usual: SandboxTerminal, ticket: RolloutRequest, waits: ToolDelays) -> SandboxTerminal:
    """What the episode of ``ticket`` has in place of its ``usual`` terminal."""
    if ticket.purpose != TRAIN_PURPOSE:
        return usual
    terminal = DelayedTerminal(
        usual.session,
        usual.task,
        usual.command_timeout_s,
        usual.grade_timeout_s,
        usual.observation_chars,
        usual.vanished_before,
        tools=usual.tools,
    )
    terminal.delay_s = waits.draw_delay_s(ticket.task, ticket.sample)
    return terminal


class DelayedWorker(RolloutWorker):
    def __init__(
        self, settings: WorkerSpec, conductor: Remote[RolloutScheduler], engines: tuple[Remote[Engine], ...]
    ) -> None:
        super().__init__(settings, conductor, engines)
        self._waits = ToolDelays.from_json(os.environ[DELAYS_VARIABLE])

    def _terminal(self, request: RolloutRequest, task: Task, session: SandboxSession) -> SandboxTerminal:
        return delay_first_command(super()._terminal(request, task, session), request, self._waits)


DELAYED_ACTOR_CLASSES = ActorClasses(worker=DelayedWorker)
