"""An exam: an evaluation beside training, of the weights of one version.

Its tickets are apart from training's, for a worker of its own, so that none of training's waits for one of them.  All
of its attempts are sampled by that version: one of which another version has sampled a token counts as infrastructure's
failure and is tried again.  An attempt is on the disk before it counts, so a conductor in a dead one's place, or a
resumed run, goes on behind those that there are.

A state machine but for that file; :class:`actors.scheduler.rollout_scheduler.Conductor` carries it out.  It is over when every attempt is
there, or when infrastructure failed one of them too often.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.scheduler.evaluation import EvaluationAttempt, EvaluationPlan, EvaluationTracker
from actors.scheduler.request_queue import AssignedRequest, RolloutRequestQueue
from protocol.events import EmitEvent
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.trajectory import InfraFailure, RolloutRequest
from protocol.weights import WeightVersion, format_version

_ATTEMPT = TypeAdapter(EvaluationAttempt)


@dataclass(frozen=True, slots=True)
class OnlineEvaluationPlan:
    evaluation: EvaluationPlan
    version: WeightVersion
    """Whose weights sample all of it."""
    attempts_path: Path
    """File of those that there are, one a line."""


class EvaluationAttemptFile:
    """The attempts of one exam.  One writer at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        cut_torn_line(path)

    def append_attempt(self, request: RolloutRequest, attempt: EvaluationAttempt) -> None:
        """Raises OSError."""
        line = {"group": request.group, "sample": request.sample, "attempt": asdict(attempt)}
        append_atomically(self._path, orjson.dumps(line) + b"\n")

    def read_attempts(self) -> dict[tuple[int, int], EvaluationAttempt]:
        """(task's number, sample) → attempt; the first of two.  A line that a disk has damaged is none, and its attempt
        is made again."""
        found: dict[tuple[int, int], EvaluationAttempt] = {}
        for line in self._path.read_bytes().splitlines() if self._path.exists() else []:
            with suppress(ValueError, KeyError, TypeError):
                value = orjson.loads(line)
                found.setdefault((value["group"], value["sample"]), _ATTEMPT.validate_python(value["attempt"]))
        return found


class OnlineEvaluationState:
    def __init__(
        self,
        plan: OnlineEvaluationPlan,
        run_id: str,
        *,
        replacement_limit: int,
        ticket_deadline_s: float,
        emit: EmitEvent,
    ) -> None:
        """Raises OSError where what is there of it cannot be read."""
        self.plan, self._emit = plan, emit
        self._limit, self._deadline_s = replacement_limit, ticket_deadline_s
        self._file = EvaluationAttemptFile(plan.attempts_path)
        self._requests = RolloutRequestQueue()
        self.tracker = EvaluationTracker(plan.evaluation)
        known = self._file.read_attempts()
        for ticket in plan.evaluation.make_requests(run_id):
            if (attempt := known.get((ticket.group, ticket.sample))) is not None:
                self.tracker.add_attempt(ticket, attempt)
            else:
                self._requests.add(ticket)

    @property
    def name(self) -> str:
        return self.plan.evaluation.name

    def assign_requests(self, worker: str, free: int, now: float) -> list[RolloutRequest]:
        """Up to ``free`` tickets for ``worker`` (name#incarnation)."""
        return self._requests.assign(worker, free, now, now + self._deadline_s)

    def find_undelivered(self, worker: str, holds: Collection[str]) -> list[RolloutRequest]:
        """:meth:`actors.scheduler.request_queue.Tickets.unheard`."""
        return self._requests.find_undelivered(worker, holds)

    def report_evaluated(self, request: RolloutRequest, attempt: EvaluationAttempt) -> None:
        """An attempt has come to its end.  Raises OSError where it cannot be kept: it is not counted then."""
        if others := set(attempt.versions) - {self.plan.version}:
            labels = ", ".join(map(format_version, sorted(others)))
            self.report_failed(
                request, InfraFailure.UNEXPECTED, f"sampled by {labels}, not {format_version(self.plan.version)}"
            )
            return
        key = (request.group, request.sample)
        if self.tracker.is_open(request):
            self._file.append_attempt(request, attempt)
            self.tracker.add_attempt(request, attempt)
            self._requests.withdraw(lambda waiting: (waiting.group, waiting.sample) == key)
            self.emit_progress()
        self._requests.finish(request)

    def emit_progress(self) -> None:
        """How far it is."""
        done = self.tracker.attempts()
        passed = sum(each.passed for each in done)
        self._emit("eval.progress", name=self.name, done=len(done), total=self.tracker.total, passed=passed)

    def report_failed(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> None:
        """Infrastructure failed a ticket."""
        if (out := self._requests.finish(request)) is not None:
            self._handle_failure(out, failure, detail)

    def register_worker(self, worker: str, me: str) -> None:
        """``worker`` has started as ``me``; what an earlier incarnation of it held is issued again."""
        for out in self._requests.reclaim_from_worker(worker, except_incarnation=me):
            self._handle_failure(out, InfraFailure.WORKER_DIED, "its worker died")

    def reissue_overdue(self, now: float) -> None:
        """Issue again what is out too long."""
        for out in self._requests.reclaim_overdue(now):
            self._handle_failure(out, InfraFailure.DEADLINE, "no word from its worker within the deadline")

    def _handle_failure(self, out: AssignedRequest, failure: InfraFailure, detail: str) -> None:
        ticket = out.request
        self._emit("episode.failed", trajectory=ticket.trajectory_id, reason=failure.value, detail=detail)
        if not self.tracker.is_open(ticket):
            return
        if ticket.attempt < self._limit:
            again = self._requests.reissue(ticket, failure)
            self._emit(
                "rollout_request.reissued", trajectory=ticket.trajectory_id, attempt=again.attempt, reason=failure.value
            )
        elif said := self.tracker.give_up_attempt(ticket, failure, detail):
            self._requests.withdraw(lambda waiting: waiting.task == ticket.task)
            self._emit("alert.raised", name="evaluation", text=said)
