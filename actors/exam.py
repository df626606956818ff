"""An exam: an evaluation beside training, of the weights of one version.

Its tickets are apart from training's, for a worker of its own, so that none of training's waits for one of them.  All
of its attempts are sampled by that version: one of which another version has sampled a token counts as infrastructure's
failure and is tried again.  An attempt is on the disk before it counts, so a conductor in a dead one's place, or a
resumed run, goes on behind those that there are.

A state machine but for that file; :class:`actors.conductor.Conductor` carries it out.  It is over when every attempt is
there, or when infrastructure failed one of them too often.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from actors.dispatch import Say
from actors.evaluation import Attempt, Evaluation, EvaluationPlan
from actors.tickets import Out, Tickets
from protocol.filesystem import append_whole, cut_torn_line
from protocol.trajectory import InfraFailure, Ticket
from protocol.weights import Version, version_label

_ATTEMPT = TypeAdapter(Attempt)


@dataclass(frozen=True, slots=True)
class ExamPlan:
    evaluation: EvaluationPlan
    version: Version
    """Whose weights sample all of it."""
    attempts: Path
    """File of those that there are, one a line."""


class AttemptFile:
    """The attempts of one exam.  One writer at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        cut_torn_line(path)

    def add(self, ticket: Ticket, attempt: Attempt) -> None:
        """Raises OSError."""
        line = {"group": ticket.group, "sample": ticket.sample, "attempt": asdict(attempt)}
        append_whole(self._path, orjson.dumps(line) + b"\n")

    def read(self) -> dict[tuple[int, int], Attempt]:
        """(task's number, sample) → attempt; the first of two.  A line that a disk has damaged is none, and its attempt
        is made again."""
        found: dict[tuple[int, int], Attempt] = {}
        for line in self._path.read_bytes().splitlines() if self._path.exists() else []:
            with suppress(ValueError, KeyError, TypeError):
                value = orjson.loads(line)
                found.setdefault((value["group"], value["sample"]), _ATTEMPT.validate_python(value["attempt"]))
        return found


class Exam:
    def __init__(
        self, plan: ExamPlan, run_id: str, *, replacement_limit: int, ticket_deadline_s: float, say: Say
    ) -> None:
        """Raises OSError where what is there of it cannot be read."""
        self.plan, self._say = plan, say
        self._limit, self._deadline_s = replacement_limit, ticket_deadline_s
        self._file = AttemptFile(plan.attempts)
        self._tickets = Tickets()
        self.evaluation = Evaluation(plan.evaluation)
        known = self._file.read()
        for ticket in plan.evaluation.tickets(run_id):
            if (attempt := known.get((ticket.group, ticket.sample))) is not None:
                self.evaluation.add(ticket, attempt)
            else:
                self._tickets.add(ticket)

    @property
    def name(self) -> str:
        return self.plan.evaluation.name

    def hand_out(self, worker: str, free: int, now: float) -> list[Ticket]:
        """Up to ``free`` tickets for ``worker`` (name#incarnation)."""
        return self._tickets.hand_out(worker, free, now, now + self._deadline_s)

    def unheard(self, worker: str, holds: Collection[str]) -> list[Ticket]:
        """:meth:`actors.tickets.Tickets.unheard`."""
        return self._tickets.unheard(worker, holds)

    def evaluated(self, ticket: Ticket, attempt: Attempt) -> None:
        """An attempt has come to its end.  Raises OSError where it cannot be kept: it is not counted then."""
        if others := set(attempt.versions) - {self.plan.version}:
            labels = ", ".join(map(version_label, sorted(others)))
            self.failed(ticket, InfraFailure.UNEXPECTED, f"sampled by {labels}, not {version_label(self.plan.version)}")
            return
        key = (ticket.group, ticket.sample)
        if self.evaluation.wants(ticket):
            self._file.add(ticket, attempt)
            self.evaluation.add(ticket, attempt)
            self._tickets.withdraw(lambda waiting: (waiting.group, waiting.sample) == key)
            self.tell()
        self._tickets.finish(ticket)

    def tell(self) -> None:
        """How far it is."""
        done = self.evaluation.attempts()
        passed = sum(each.passed for each in done)
        self._say("eval.progress", name=self.name, done=len(done), total=self.evaluation.total, passed=passed)

    def failed(self, ticket: Ticket, failure: InfraFailure, detail: str) -> None:
        """Infrastructure failed a ticket."""
        if (out := self._tickets.finish(ticket)) is not None:
            self._lost(out, failure, detail)

    def hello(self, worker: str, me: str) -> None:
        """``worker`` has started as ``me``; what an earlier incarnation of it held is issued again."""
        for out in self._tickets.lost_with(worker, except_incarnation=me):
            self._lost(out, InfraFailure.WORKER_DIED, "its worker died")

    def patrol(self, now: float) -> None:
        """Issue again what is out too long."""
        for out in self._tickets.overdue(now):
            self._lost(out, InfraFailure.DEADLINE, "no word from its worker within the deadline")

    def _lost(self, out: Out, failure: InfraFailure, detail: str) -> None:
        ticket = out.ticket
        self._say("episode.failed", trajectory=ticket.trajectory_id, reason=failure.value, detail=detail)
        if not self.evaluation.wants(ticket):
            return
        if ticket.attempt < self._limit:
            again = self._tickets.reissue(ticket, failure)
            self._say("ticket.reissued", trajectory=ticket.trajectory_id, attempt=again.attempt, reason=failure.value)
        elif said := self.evaluation.give_up(ticket, failure, detail):
            self._tickets.withdraw(lambda waiting: waiting.task == ticket.task)
            self._say("advisory", about="evaluation", text=said)
