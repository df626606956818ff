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
from protocol.trajectory import EpisodeStatus, GroupId, InfraFailure, RolloutRequest


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

    def make_requests(self, run_id: str) -> list[RolloutRequest]:
        """Attempt by attempt over all tasks, so that an early stop still covers each task."""
        size = self.attempts + self.greedy
        return [
            RolloutRequest(
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
class EvaluationAttempt:
    """What one attempt came to."""

    task: str
    family: str
    greedy: bool
    passed: bool
    reward: float
    status: EpisodeStatus
    sampled_tokens: int
    versions: tuple[int, ...] = ()
    """Of the weights that sampled it, each once; none where it was broken off before the first token."""
    group: int = -1
    """Its task's number in the plan; −1 where that is not known."""


@dataclass(slots=True)
class EvaluationTracker:
    """Collects the attempts of one plan and says when it is over."""

    plan: EvaluationPlan
    finished_attempts: dict[tuple[int, int], EvaluationAttempt] = field(
        default_factory=dict[tuple[int, int], EvaluationAttempt]
    )
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    failure: InfraError | None = None
    """Why it will never be complete."""
    excluded_tasks: set[str] = field(default_factory=set[str])
    """Tasks."""

    @property
    def total(self) -> int:
        return (len(self.plan.tasks) - len(self.excluded_tasks)) * (self.plan.attempts + self.plan.greedy)

    def is_open(self, request: RolloutRequest) -> bool:
        """Its attempt is still open."""
        return (request.group, request.sample) not in self.finished_attempts and request.task not in self.excluded_tasks

    def add_attempt(self, request: RolloutRequest, attempt: EvaluationAttempt) -> bool:
        """False when this attempt is already there, or its task was left out."""
        if not self.is_open(request):
            return False
        self.finished_attempts[request.group, request.sample] = attempt
        self._finish_if_complete()
        return True

    def give_up_attempt(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> str:
        """``ticket`` will not be issued again, so its attempt stays open, unless an earlier try of it came in late.
        What is to be told where its task is left out for it; empty for nothing."""
        if not self.is_open(request):
            return ""
        why = " ".join(detail.split())[:300]
        if failure is InfraFailure.TASK_FAULT and len(self.excluded_tasks) + 1 < len(self.plan.tasks):
            self.excluded_tasks.add(request.task)
            self.finished_attempts = {
                key: attempt for key, attempt in self.finished_attempts.items() if attempt.task != request.task
            }
            self._finish_if_complete()
            return f"the evaluation {self.plan.name} goes on without the task {request.task}, which fails itself: {why}"
        self.failure = InfraError(
            f"evaluation {self.plan.name} cannot be completed: infrastructure failed task {request.task} "
            f"{request.attempt + 1} times (rollout.replacement_limit), at last with {failure}: {why}; mend that and "
            "go on with the run"
        )
        self.finished.set()
        return ""

    def _finish_if_complete(self) -> None:
        if len(self.finished_attempts) == self.total:
            self.finished.set()

    def attempts(self) -> Sequence[EvaluationAttempt]:
        return [self.finished_attempts[key] for key in sorted(self.finished_attempts)]
