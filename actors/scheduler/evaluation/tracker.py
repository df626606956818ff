"""Collects the attempts of one evaluation, each finished exactly once.  Pure.

It ends when every attempt is finished, or when infrastructure failed one of them too often.  A task whose own image,
setup or service fails is excluded; if every task is, the evaluation ends without an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.scheduler.evaluation.plan import EvaluationPlan
from protocol.errors import InfraError
from protocol.evaluation import AttemptRecord
from protocol.trajectory import InfraFailure, RolloutRequest


@dataclass(slots=True)
class EvaluationTracker:
    """Collects the attempts of one plan until the evaluation is over."""

    plan: EvaluationPlan
    finished_attempts: dict[tuple[int, int], AttemptRecord] = field(
        default_factory=dict[tuple[int, int], AttemptRecord]
    )
    """Mapping from (task index, sample) to the attempt."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    failure: InfraError | None = None
    """Error because of which the evaluation cannot be completed, else None."""
    excluded_tasks: set[str] = field(default_factory=set[str])

    @property
    def total(self) -> int:
        """Number of attempts that make the evaluation complete."""
        return (len(self.plan.tasks) - len(self.excluded_tasks)) * (self.plan.attempts + self.plan.greedy)

    def is_open(self, request: RolloutRequest) -> bool:
        """Return whether the attempt of ``request`` is still missing."""
        return (request.group, request.sample) not in self.finished_attempts and request.task not in self.excluded_tasks

    def add_attempt(self, request: RolloutRequest, attempt: AttemptRecord) -> bool:
        """Count an attempt.  Return False if it was counted before, or its task is excluded."""
        if not self.is_open(request):
            return False
        self.finished_attempts[request.group, request.sample] = attempt
        self._finish_if_complete()
        return True

    def give_up_attempt(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> str:
        """Record that ``request`` will not be issued again.

        If its attempt is missing, either its task is excluded, and the message for a person is returned, or the
        evaluation fails; otherwise nothing happens.  Returns "" if there is no message."""
        if not self.is_open(request):
            return ""
        why = " ".join(detail.split())[:300]
        if failure is InfraFailure.TASK_FAULT:
            self.excluded_tasks.add(request.task)
            self.finished_attempts = {
                key: attempt for key, attempt in self.finished_attempts.items() if attempt.task != request.task
            }
            self._finish_if_complete()
            if not self.total:
                return (
                    f"evaluation {self.plan.name} has no result: none of its tasks can run, the last of which is "
                    f"{request.task}: {why}; name others in data.held_out_ids"
                )
            return f"evaluation {self.plan.name} continues without task {request.task}, which cannot run: {why}"
        self.failure = InfraError(
            f"evaluation {self.plan.name} cannot be completed: infrastructure failed task {request.task} "
            f"{request.attempt + 1} times (rollout.replacement_limit), most recently with {failure}: {why}; fix that "
            "and resume the run"
        )
        self.finished.set()
        return ""

    def attempts(self) -> Sequence[AttemptRecord]:
        """Return the attempts so far, in plan order."""
        return [self.finished_attempts[key] for key in sorted(self.finished_attempts)]

    def _finish_if_complete(self) -> None:
        if len(self.finished_attempts) == self.total:
            self.finished.set()
