"""The requests of a running evaluation, and what happens to each.  The only I/O is the file of attempts.

They are separate from those of training (:mod:`actors.scheduler.training_requests`).  If an evaluation is bound to one
weight version, an attempt with tokens of another version counts as an infrastructure failure and is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from actors.scheduler.evaluation.plan import EvaluationPlan, OnlineEvaluationPlan
from actors.scheduler.evaluation.tracker import EvaluationTracker
from actors.scheduler.request_queue import OVERDUE, AssignedRequest, RolloutRequestQueue, request_key
from actors.scheduler.settings import SchedulerSpec
from protocol.evaluation import AttemptFile, AttemptId, AttemptRecord, read_attempts
from protocol.events import EmitEvent
from protocol.trajectory import InfraFailure, RolloutRequest
from protocol.weights import WeightVersion, format_version


@dataclass(slots=True)
class EvaluationRequests:
    """Issues the requests of one plan until :attr:`tracker` is finished."""

    plan: EvaluationPlan
    spec: SchedulerSpec
    emit: EmitEvent
    version: WeightVersion | None = None
    """The only weight version that may sample it; None for any."""
    attempt_file: AttemptFile | None = None
    """The file that keeps attempts; None keeps them in memory only."""
    known: Mapping[AttemptId, AttemptRecord] = field(default_factory=dict[AttemptId, AttemptRecord])
    """Attempts that are finished already."""
    tracker: EvaluationTracker = field(init=False)
    requests: RolloutRequestQueue = field(default_factory=RolloutRequestQueue)

    def __post_init__(self) -> None:
        self.tracker = EvaluationTracker(self.plan)
        for request in self.plan.make_requests(self.spec.run_id):
            if (attempt := self.known.get(AttemptId(request.task, request.sample))) is not None:
                self.tracker.add_attempt(request, attempt)
            else:
                self.requests.add(request)

    @staticmethod
    def open_online(plan: OnlineEvaluationPlan, spec: SchedulerSpec, emit: EmitEvent) -> EvaluationRequests:
        """Open an evaluation during training, continuing after the attempts on disk.  Raises OSError."""
        file = AttemptFile(plan.attempts_path)
        known = read_attempts(plan.attempts_path, skip_damaged=True)
        return EvaluationRequests(plan.evaluation, spec, emit, plan.version, file, known)

    def assign_requests(
        self, worker: str, free: int, now: float, can_start: Callable[[RolloutRequest], bool] = lambda _: True
    ) -> list[RolloutRequest]:
        """Assign up to ``free`` requests that ``can_start`` accepts to ``worker`` (``NAME#INCARNATION``)."""
        return self.requests.assign(worker, free, now, now + self.spec.request_deadline_s, can_start)

    def find_undelivered(self, worker: str, holds: Collection[str]) -> list[RolloutRequest]:
        """See :meth:`RolloutRequestQueue.find_undelivered`."""
        return self.requests.find_undelivered(worker, holds)

    def report_evaluated(self, request: RolloutRequest, attempt: AttemptRecord) -> None:
        """Count a finished attempt.  Raises OSError if it cannot be written; then it does not count."""
        if self.version is not None and (others := set(attempt.versions) - {self.version}):
            labels = ", ".join(map(format_version, sorted(others)))
            detail = f"sampled by {labels}, not {format_version(self.version)}"
            self.report_failed(request, InfraFailure.UNEXPECTED, detail)
            return
        if self.tracker.is_open(request):
            if self.attempt_file is not None:
                self.attempt_file.append(attempt)
            self.tracker.add_attempt(request, attempt)
            key = request_key(request)
            self.requests.withdraw(lambda waiting: request_key(waiting) == key)
            self.emit_progress()
        self.requests.finish(request)

    def emit_progress(self) -> None:
        """Emit the number of finished attempts."""
        done = self.tracker.attempts()
        passed = sum(each.passed for each in done)
        self.emit("evaluation.progress", name=self.plan.name, done=len(done), total=self.tracker.total, passed=passed)

    def report_failed(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> None:
        """Issue a request again that infrastructure failed, or give its attempt up."""
        if (out := self.requests.finish(request)) is not None:
            self._handle_failure(out, failure, detail)

    def reclaim_from_worker(self, worker: str, detail: str, *, except_incarnation: str = "") -> None:
        """Issue the requests of all incarnations of ``worker`` again, except one."""
        for out in self.requests.reclaim_from_worker(worker, except_incarnation=except_incarnation):
            self._handle_failure(out, InfraFailure.WORKER_DIED, detail)

    def reissue_overdue(self, now: float) -> None:
        """Issue the requests whose deadline has passed again."""
        for out in self.requests.reclaim_overdue(now):
            self._handle_failure(out, InfraFailure.DEADLINE, OVERDUE)

    def _handle_failure(self, out: AssignedRequest, failure: InfraFailure, detail: str) -> None:
        request = out.request
        self.emit("episode.failed", trajectory=request.trajectory_id, reason=failure.value, detail=detail)
        if not self.tracker.is_open(request):
            return
        if request.attempt < self.spec.settings.replacement_limit:
            self.requests.reissue(request, failure, self.emit)
        elif message := self.tracker.give_up_attempt(request, failure, detail):
            self.requests.withdraw(lambda waiting: waiting.task == request.task)
            self.emit("alert.raised", name="evaluation", text=message)
