"""The evaluations that run now: at most one on the workers of training, and one on the evaluation worker.

Each has requests of its own (:mod:`.requests`).  Reports find theirs by the purpose of the request; a report
for an evaluation that has ended changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from actors.scheduler.evaluation.plan import EvaluationPlan, OnlineEvaluationPlan
from actors.scheduler.evaluation.requests import EvaluationRequests
from actors.scheduler.settings import SchedulerSpec
from protocol.evaluation import AttemptRecord
from protocol.events import EmitEvent
from protocol.trajectory import InfraFailure, RolloutRequest


@dataclass(slots=True)
class RunningEvaluations:
    """Runs evaluations to their end, and hands reports to the one that they belong to."""

    spec: SchedulerSpec
    emit: EmitEvent
    notify: Callable[[], Awaitable[None]]
    """Wakes the workers that wait for requests."""
    offline: EvaluationRequests | None = None
    """The evaluation that the workers of training run."""
    online: EvaluationRequests | None = None
    """The evaluation that the evaluation worker runs."""

    async def run(self, plan: EvaluationPlan) -> Sequence[AttemptRecord]:
        """Run ``plan`` on the workers of training and return its attempts in plan order.  Raises InfraError if an
        attempt and all its replacements fail."""
        evaluation = self.offline = EvaluationRequests(plan, self.spec, self.emit)
        try:
            return await self._finish(evaluation)
        finally:
            if self.offline is evaluation:
                self.offline = None

    async def run_online(self, plan: OnlineEvaluationPlan) -> Sequence[AttemptRecord]:
        """Run ``plan`` on the evaluation worker, continuing after the attempts on disk.  Raises as :meth:`run`, and
        OSError if the attempts cannot be read."""
        evaluation = self.online = await asyncio.to_thread(EvaluationRequests.open_online, plan, self.spec, self.emit)
        evaluation.emit_progress()
        try:
            return await self._finish(evaluation)
        finally:
            if self.online is evaluation:
                self.online = None

    async def _finish(self, evaluation: EvaluationRequests) -> Sequence[AttemptRecord]:
        await self.notify()
        await evaluation.tracker.finished.wait()
        if evaluation.tracker.failure is not None:
            raise evaluation.tracker.failure
        return evaluation.tracker.attempts()

    @property
    def all(self) -> list[EvaluationRequests]:
        return [each for each in (self.offline, self.online) if each is not None]

    async def report_evaluated(self, request: RolloutRequest, attempt: AttemptRecord) -> None:
        """Record a finished attempt.  Raises OSError if it cannot be written."""
        if (evaluation := self._evaluation_of(request)) is not None:
            evaluation.report_evaluated(request, attempt)
            await self.notify()

    async def report_failed(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> None:
        """Record that infrastructure failed an attempt."""
        if (evaluation := self._evaluation_of(request)) is not None:
            evaluation.report_failed(request, failure, detail)
            await self.notify()

    def _evaluation_of(self, request: RolloutRequest) -> EvaluationRequests | None:
        return next((each for each in self.all if each.plan.name == request.purpose), None)
