"""One evaluation: every task some times sampled and some times greedy, each attempt finished exactly once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.trajectory import GroupId, Status, Ticket


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """``attempts`` at temperature 1 and ``greedy`` greedy ones for each of ``tasks``; the same seeds for the same
    ``seed``, whatever ``name``."""

    name: str
    tasks: tuple[str, ...]
    attempts: int
    greedy: int
    seed: int

    def tickets(self, run_id: str) -> list[Ticket]:
        """Attempt by attempt over all tasks, so that an early stop still covers each task."""
        size = self.attempts + self.greedy
        return [
            Ticket(
                run_id,
                GroupId(index),
                sample,
                size,
                task,
                random.Random(f"{self.seed}/{task}/{sample}").getrandbits(31),
                purpose=self.name,
                greedy=sample >= self.attempts,
            )
            for sample in range(size)
            for index, task in enumerate(self.tasks)
        ]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt came to."""

    task: str
    family: str
    greedy: bool
    passed: bool
    reward: float
    status: Status
    sampled_tokens: int


@dataclass(slots=True)
class Evaluation:
    """Collects the attempts of one plan and says when all are there."""

    plan: EvaluationPlan
    done: dict[tuple[int, int], Attempt] = field(default_factory=dict[tuple[int, int], Attempt])
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def total(self) -> int:
        return len(self.plan.tasks) * (self.plan.attempts + self.plan.greedy)

    def add(self, ticket: Ticket, attempt: Attempt) -> bool:
        """False when this attempt is already there."""
        key = (ticket.group, ticket.sample)
        if key in self.done:
            return False
        self.done[key] = attempt
        if len(self.done) == self.total:
            self.complete.set()
        return True

    def attempts(self) -> Sequence[Attempt]:
        return [self.done[key] for key in sorted(self.done)]
