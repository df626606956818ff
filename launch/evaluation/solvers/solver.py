"""The interface of solvers, and the two without a model: the task's own solution, and nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.rewards.episode_result import ModelTurn
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.terminal import EpisodeGrade, SandboxDestroyedByAgent
from protocol.evaluation import AttemptId, AttemptUsage
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus, Reward
from sandbox.errors import SandboxDestroyed
from sandbox.tasks.task import Task
from sandbox.validation.proofs import run_oracle


class SolverRun(Protocol):
    """One running attempt."""

    def run(self) -> Coroutine[None, None, EpisodeStatus]:
        """Act until the attempt can be graded.  Raises InfraError (also as SandboxLost) and SandboxDestroyed."""
        ...

    @property
    def turns(self) -> Sequence[ModelTurn]: ...

    @property
    def final_answer(self) -> str:
        """Answer by which a task that asks for one is graded."""
        ...

    @property
    def usage(self) -> AttemptUsage: ...

    def trajectory_json(self) -> dict[str, JsonValue]:
        """Return the trajectory for ``--save-trajectories``."""
        ...


Solver = Callable[[Task, AttemptId, SandboxTerminal, EpisodeObserver], SolverRun]


class NullObserver:
    """Ignores everything."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None: ...
    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None: ...
    def on_result(self, output: str) -> None: ...
    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None: ...


@dataclass(slots=True)
class ScriptedSolverRun:
    """One attempt without a model."""

    act: Callable[[], Coroutine[None, None, None]]
    final_answer: str = ""
    turns: Sequence[ModelTurn] = ()
    usage: AttemptUsage = field(default_factory=AttemptUsage)

    async def run(self) -> EpisodeStatus:
        await self.act()
        return EpisodeStatus.COMPLETED

    def trajectory_json(self) -> dict[str, JsonValue]:
        return {"messages": []}


def oracle_solver(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
    """Run the task's own solution."""
    del attempt

    async def act() -> None:
        if not task.solution:
            return
        observer.on_call("solution", task.solution)
        try:
            observer.on_result(await run_oracle(terminal.session, task))
        except SandboxDestroyed as error:
            raise SandboxDestroyedByAgent(str(error)) from error

    return ScriptedSolverRun(act, rf"\boxed{{{task.answer}}}" if task.answer else "")


def noop_solver(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver) -> SolverRun:
    """Do nothing."""
    del task, attempt, terminal, observer

    async def act() -> None:
        return

    return ScriptedSolverRun(act)
