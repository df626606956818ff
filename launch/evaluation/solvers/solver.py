"""The interface of solvers, and the two without a model: the task's own solution, and nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import orjson

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
from sandbox.validation.web_oracle import has_web_oracle, oracle_calls


class SolverRun(Protocol):
    """One running attempt."""

    def play(self, task: Task) -> Coroutine[None, None, EpisodeStatus]:
        """Act until the task, or a step of it, can be graded.

        Raises InfraError (also as SandboxLost) and SandboxDestroyed."""
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


Solver = Callable[[Task, AttemptId, SandboxTerminal, EpisodeObserver], AbstractContextManager[SolverRun]]
"""Opens an attempt, which plays the steps of its task within the block; what it tells can be read after it too."""


class NullObserver:
    """Ignores everything."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None: ...
    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None: ...
    def on_result(self, output: str) -> None: ...
    def on_picture(self, picture: bytes) -> None: ...
    def on_grade(self, graded: EpisodeGrade, reward: Reward) -> None: ...


@dataclass(slots=True)
class ScriptedSolverRun:
    """One attempt without a model."""

    act: Callable[[Task], Coroutine[None, None, None]]
    final_answer: str = ""
    turns: Sequence[ModelTurn] = ()
    usage: AttemptUsage = field(default_factory=AttemptUsage)

    async def play(self, task: Task) -> EpisodeStatus:
        await self.act(task)
        return EpisodeStatus.COMPLETED

    def trajectory_json(self) -> dict[str, JsonValue]:
        return {"messages": []}


@dataclass(slots=True)
class WebOracleRun:
    """The oracle of a web task: its actions, carried out by the agent's own browser and recorded as an agent's."""

    terminal: SandboxTerminal
    observer: EpisodeObserver
    messages: list[JsonValue] = field(default_factory=list["JsonValue"])
    final_answer: str = ""
    turns: Sequence[ModelTurn] = ()
    usage: AttemptUsage = field(default_factory=AttemptUsage)

    async def play(self, task: Task) -> EpisodeStatus:
        self.messages.append({"role": "user", "content": task.instruction})
        for turn, call in enumerate(oracle_calls(task)):
            action = orjson.dumps({"action": call.as_action()}).decode()
            self.messages.append({"role": "assistant", "content": f"```json\n{action}\n```"})
            self.observer.on_turn(turn, action, 0, (0, 0), 0.0)
            self.observer.on_call(call.name, action)
            done = await self.terminal.call(call.name, call.arguments, self.observer.on_output)
            self.observer.on_result(done.text)
            if done.picture is not None:
                self.observer.on_picture(done.picture)
            self.messages.append({"role": "user", "content": done.text})
        return EpisodeStatus.COMPLETED

    def trajectory_json(self) -> dict[str, JsonValue]:
        return {"messages": self.messages[:-1]}


def oracle_solver(
    task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
) -> AbstractContextManager[SolverRun]:
    """Run the task's own solution."""
    del attempt

    if has_web_oracle(task):
        return nullcontext(WebOracleRun(terminal, observer))

    async def act(step: Task) -> None:
        if not step.solution:
            return
        observer.on_call("solution", step.solution)
        try:
            observer.on_result(await run_oracle(terminal.session, step))
        except SandboxDestroyed as error:
            raise SandboxDestroyedByAgent(str(error)) from error

    return nullcontext(ScriptedSolverRun(act, rf"\boxed{{{task.answer}}}" if task.answer else ""))


def noop_solver(
    task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: EpisodeObserver
) -> AbstractContextManager[SolverRun]:
    """Do nothing."""
    del task, attempt, terminal, observer

    async def act(step: Task) -> None:
        del step

    return nullcontext(ScriptedSolverRun(act))
