"""Tries attacks on tasks, in real sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.errors import InfraError, UserError
from sandbox.errors import SandboxDestroyed, TaskFault
from sandbox.grading.steps import task_reward
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.validation.attacks.attack import Attack
from sandbox.validation.bounded import carry_out
from sandbox.validation.proofs import ProofEnvironment, attempt_task

_LIMIT_S = 60.0
NOTHING = Attack("nothing at all", "true")
"""What every attack must outdo."""


class AttackTrial(NamedTuple):
    """An attack to be tried on a task, in each of its steps that offers what it needs."""

    task: Task
    attack: Attack


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One attack on one task."""

    task: str
    attack: str
    reward: float | None
    """Reward by the task's own rule; None if it could not be tried."""
    isolation: str = ""
    falsified: bool = False
    """True if the canaries showed it."""
    why: str = ""
    """Why it could not be tried."""


def plan_trials(tasks: Sequence[Task], attacks: Sequence[Attack]) -> list[AttackTrial]:
    """Return doing nothing, and each attack, on each task that offers what it needs."""
    return [
        AttackTrial(task, attack)
        for task in tasks
        for attack in (NOTHING, *attacks)
        if any(attack.plan(step) for step in task.in_steps)
    ]


async def try_attacks(
    trials: Sequence[AttackTrial],
    environment: ProofEnvironment,
    at_once: int,
    on_result: Callable[[AttackResult], None] = lambda _: None,
) -> list[AttackResult]:
    """Carry out the trials, ``at_once`` at a time, each in a fresh sandbox.  Returns the results in their order;
    ``on_result`` gets each when it ends."""
    return await carry_out(trials, lambda trial: _try(trial, environment), at_once, on_result)


async def _try(trial: AttackTrial, environment: ProofEnvironment) -> AttackResult:
    task, attack = trial

    async def act(session: SandboxSession, step: Task) -> str:
        if command := attack.plan(step):
            await session.run(command, _LIMIT_S)
        return ""

    try:
        graded = (await attempt_task(task, environment, act)).grade
    except SandboxDestroyed:
        return AttackResult(task.id, attack.name, 0.0)
    except (UserError, TaskFault, InfraError, TimeoutError, OSError) as error:
        return AttackResult(task.id, attack.name, None, why=f"{type(error).__name__}: {error}")
    return AttackResult(task.id, attack.name, task_reward(task, graded), graded.isolation.value, graded.falsified)
