"""One evaluation: every task some times sampled and some times greedy, each attempt finished exactly once.

It is over when every attempt is there, or when infrastructure failed one of them too often.  A task whose own image,
setup or service fails is left out, as long as there are others.
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
    group: int = -1
    """Its task's number in the plan; −1 where that is not known."""


@dataclass(slots=True)
class Evaluation:
    """Collects the attempts of one plan and says when it is over."""

    plan: EvaluationPlan
    done: dict[tuple[int, int], Attempt] = field(default_factory=dict[tuple[int, int], Attempt])
    over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: InfraError | None = None
    """Why it will never be complete."""
    left_out: set[str] = field(default_factory=set[str])
    """Tasks."""

    @property
    def total(self) -> int:
        return (len(self.plan.tasks) - len(self.left_out)) * (self.plan.attempts + self.plan.greedy)

    def wants(self, ticket: Ticket) -> bool:
        """Its attempt is still open."""
        return (ticket.group, ticket.sample) not in self.done and ticket.task not in self.left_out

    def add(self, ticket: Ticket, attempt: Attempt) -> bool:
        """False when this attempt is already there, or its task was left out."""
        if not self.wants(ticket):
            return False
        self.done[ticket.group, ticket.sample] = attempt
        self._look()
        return True

    def give_up(self, ticket: Ticket, failure: InfraFailure, detail: str) -> str:
        """``ticket`` will not be issued again, so its attempt stays open, unless an earlier try of it came in late.
        What is to be told where its task is left out for it; empty for nothing."""
        if not self.wants(ticket):
            return ""
        why = " ".join(detail.split())[:300]
        if failure is InfraFailure.TASK_FAULT and len(self.left_out) + 1 < len(self.plan.tasks):
            self.left_out.add(ticket.task)
            self.done = {key: attempt for key, attempt in self.done.items() if attempt.task != ticket.task}
            self._look()
            return f"the evaluation {self.plan.name} goes on without the task {ticket.task}, which fails itself: {why}"
        self.failure = InfraError(
            f"evaluation {self.plan.name} cannot be completed: infrastructure failed task {ticket.task} "
            f"{ticket.attempt + 1} times (rollout.replacement_limit), at last with {failure}: {why}; mend that and "
            "go on with the run"
        )
        self.over.set()
        return ""

    def _look(self) -> None:
        if len(self.done) == self.total:
            self.over.set()

    def attempts(self) -> Sequence[Attempt]:
        return [self.done[key] for key in sorted(self.done)]
