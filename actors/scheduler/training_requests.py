"""The requests of training, and what happens to each that arrives, fails or is cancelled.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from actors.scheduler.failure_rates import FailureRateMonitor
from actors.scheduler.request_queue import AssignedRequest, RolloutRequestQueue, request_key
from actors.scheduler.settings import FailedRequestOutcome
from protocol.events import EmitEvent
from protocol.trajectory import GroupId, InfraFailure, RolloutRequest


@dataclass(slots=True)
class TrainingRequests:
    """The queue of training requests and the outcome of each."""

    replacement_limit: int
    emit: EmitEvent
    queue: RolloutRequestQueue = field(default_factory=RolloutRequestQueue)
    last_failure: str = ""
    """The last infrastructure failure, in one line."""
    rates: FailureRateMonitor = field(init=False)

    def __post_init__(self) -> None:
        self.rates = FailureRateMonitor(self.emit)

    def mark_arrived(self, request: RolloutRequest, now: float) -> bool:
        """Record that the sample of ``request`` has arrived and need not be run any more.

        Return False if ``request`` was not assigned: a lost worker had it, or an earlier scheduler issued it."""
        key = request_key(request)
        self._withdraw(lambda waiting: request_key(waiting) == key, "arrived")
        if (out := self.queue.finish(request)) is None:
            self.queue.settle(key)
            return False
        self.rates.add_attempt(now - out.assigned_at, failed=False)
        return True

    def handle_failure(
        self, out: AssignedRequest, failure: InfraFailure, detail: str, now: float
    ) -> FailedRequestOutcome:
        """Decide what happens to a failed request that is no longer assigned."""
        request = out.request
        self.rates.add_attempt(now - out.assigned_at, failed=True)
        self.emit("episode.failed", trajectory=request.trajectory_id, reason=failure.value, detail=detail)
        self.last_failure = f"{failure.value}: {' '.join(detail.split())[:300]}"
        if out.settled:
            return FailedRequestOutcome.SETTLED
        if request.attempt < self.replacement_limit:
            self.queue.reissue(request, failure, self.emit)
            return FailedRequestOutcome.REISSUED
        attempts = request.attempt + 1
        self.emit("sample.abandoned", trajectory=request.trajectory_id, attempts=attempts, reason=failure.value)
        return FailedRequestOutcome.ABANDONED

    def cancel_samples(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """Cancel one sample of a group, or with None all that have not arrived; return the cancelled samples."""
        cancelled = self.queue.cancel(lambda request: request.group == group and sample in {None, request.sample})
        for request in cancelled:
            self.emit("rollout_request.cancelled", trajectory=request.trajectory_id, attempt=request.attempt)
        return tuple(sorted(request.sample for request in cancelled))

    def settle_closed(self, groups: Collection[GroupId]) -> None:
        """Withdraw the waiting requests of closed groups and mark the assigned ones as no longer needed."""
        self._withdraw(lambda request: request.group in groups, "group_closed")
        for key in [key for key, out in self.queue.assigned.items() if out.request.group in groups]:
            self.queue.settle(key)

    def _withdraw(self, is_needless: Callable[[RolloutRequest], bool], reason: str) -> None:
        for request in self.queue.withdraw(is_needless):
            self.emit(
                "rollout_request.withdrawn", trajectory=request.trajectory_id, attempt=request.attempt, reason=reason
            )
