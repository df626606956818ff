"""Who attempts a task: a model by its agent, the task's own solution, or nobody."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from actors.episode import Graded, Observer, SandboxGone
from actors.rewards.played import ModelTurn
from actors.terminal import SandboxTerminal
from launch.evaluate.attempts import AttemptId, Effort
from protocol.events import Json
from protocol.trajectory import Reward, Status
from sandbox.errors import SandboxDestroyed
from sandbox.tasks.prove import solve
from sandbox.tasks.task import Task


class Attempting(Protocol):
    """One attempt, under way."""

    def run(self) -> Coroutine[None, None, Status]:
        """Act until it is to be graded.  Raises InfraError and SandboxGone."""
        ...

    @property
    def turns(self) -> Sequence[ModelTurn]: ...

    @property
    def last_words(self) -> str:
        """By which a task that asks for an answer is graded."""
        ...

    @property
    def effort(self) -> Effort: ...

    def told(self) -> dict[str, Json]:
        """Its trajectory, for who saves it."""
        ...


Player = Callable[[Task, AttemptId, SandboxTerminal, Observer], Attempting]


class Unobserved:
    """Nobody watches."""

    def on_turn(self, turn: int, text: str, sampled: int, versions: tuple[int, int], ms: float) -> None: ...
    def on_call(self, name: str, command: str) -> None: ...
    def on_output(self, text: str) -> None: ...
    def on_result(self, output: str) -> None: ...
    def on_grade(self, graded: Graded, reward: Reward) -> None: ...


@dataclass(slots=True)
class Scripted:
    """Without a model."""

    act: Callable[[], Coroutine[None, None, None]]
    last_words: str = ""
    turns: Sequence[ModelTurn] = ()
    effort: Effort = field(default_factory=Effort)

    async def run(self) -> Status:
        await self.act()
        return Status.COMPLETED

    def told(self) -> dict[str, Json]:
        return {"messages": []}


def oracle(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
    """The task's own solution."""
    del attempt

    async def act() -> None:
        if not task.solution:
            return
        observer.on_call("solution", task.solution)
        try:
            observer.on_result(await solve(terminal.session, task))
        except SandboxDestroyed as error:
            raise SandboxGone(str(error)) from error

    return Scripted(act, rf"\boxed{{{task.answer}}}" if task.answer else "")


def noop(task: Task, attempt: AttemptId, terminal: SandboxTerminal, observer: Observer) -> Attempting:
    """Nothing at all."""
    del task, attempt, terminal, observer

    async def act() -> None:
        return

    return Scripted(act)
