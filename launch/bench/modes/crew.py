"""A run's crew, whose workers let each training episode wait once: its first command sleeps in the sandbox's own shell
before it does anything.  Evaluations do not wait."""

from __future__ import annotations

import os
from collections.abc import Callable

from actors.conductor import Conductor
from actors.engines.engine import Engine
from actors.episode import ToolOutcome
from actors.remote import Remote
from actors.terminal import SandboxTerminal
from actors.worker import Worker, WorkerSettings
from launch.bench.modes.waits import Waits
from launch.crew import Crew
from protocol.trajectory import TRAIN, Ticket
from sandbox.session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tools.shell_only import SHELL_EXEC

WAITS = "LONGSHORE_BENCH_WAITS"
"""Variable by which workers are told :class:`Waits`."""


class WaitingTerminal(SandboxTerminal):
    wait_s = 0.0
    """Of the first command, which it is yet to run."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolOutcome:
        command = arguments.get("command")
        if name == SHELL_EXEC.name and isinstance(command, str) and self.wait_s:
            arguments = {**arguments, "command": f"sleep {self.wait_s:.3f}\n{command}"}
            self.wait_s = 0.0
        return await super().call(name, arguments, on_output)


def waiting(usual: SandboxTerminal, ticket: Ticket, waits: Waits) -> SandboxTerminal:
    """What the episode of ``ticket`` has in place of its ``usual`` terminal."""
    if ticket.purpose != TRAIN:
        return usual
    terminal = WaitingTerminal(
        usual.session,
        usual.task,
        usual.command_timeout_s,
        usual.grade_timeout_s,
        usual.observation_chars,
        usual.vanished_before,
        tools=usual.tools,
    )
    terminal.wait_s = waits.of(ticket.task, ticket.sample)
    return terminal


class WaitingWorker(Worker):
    def __init__(
        self, settings: WorkerSettings, conductor: Remote[Conductor], engines: tuple[Remote[Engine], ...]
    ) -> None:
        super().__init__(settings, conductor, engines)
        self._waits = Waits.loaded(os.environ[WAITS])

    def _terminal(self, ticket: Ticket, task: Task, session: SandboxSession) -> SandboxTerminal:
        return waiting(super()._terminal(ticket, task, session), ticket, self._waits)


CREW = Crew(worker=WaitingWorker)
