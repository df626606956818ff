"""One evaluation: every task some times sampled and some times greedy, each attempt finished exactly once.

It is over when every attempt is there, or when infrastructure failed one of them too often.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.errors import InfraError
from protocol.trajectory import GroupId, InfraFailure, Status, Ticket


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """``attempts`` at temperature 1 and ``greedy`` greedy ones for each of ``tasks``; the same tasks, tickets and seeds
    for the same ``seed``, whatever ``name``.  Only engines with ``deterministic`` set draw by those seeds; from others,
    the sampled attempts of two evaluations are independent draws."""

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
    versions: tuple[int, ...] = ()
    """Of the weights that sampled it, each once; none where it was broken off before the first token."""


@dataclass(slots=True)
class Evaluation:
    """Collects the attempts of one plan and says when it is over."""

    plan: EvaluationPlan
    done: dict[tuple[int, int], Attempt] = field(default_factory=dict[tuple[int, int], Attempt])
    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: InfraError | None = None
    """Why it will never be complete."""

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
            self.over.set()
        return True

    def give_up(self, ticket: Ticket, failure: InfraFailure, detail: str) -> None:
        """``ticket`` will not be issued again, so its attempt stays open, unless an earlier try of it came in late."""
        if (ticket.group, ticket.sample) in self.done:
            return
        why = " ".join(detail.split())[:300]
        self.failure = InfraError(
            f"evaluation {self.plan.name} cannot be completed: infrastructure failed task {ticket.task} "
            f"{ticket.attempt + 1} times (rollout.replacement_limit), at last with {failure}: {why}; mend that and "
            "go on with the run"
        )
        self.over.set()

    def attempts(self) -> Sequence[Attempt]:
        return [self.done[key] for key in sorted(self.done)]
