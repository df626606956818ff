"""Which task next, for whom: tickets out, tickets back, evaluations.

Invariants:

- A ticket leaves only after its group and all its tickets are durable in the journal.
- Admission decides how many groups are open, never which: the cursor alone orders tasks.  It counts groups opened less
  those that fill no step (dropped, passed over), which no order of news can make too few.
- A sample ends in exactly one of: acknowledged trajectory, or abandoned after its replacements failed.  A worker that
  dies has its tickets issued again.  An attempt of an evaluation is not abandoned: the evaluation fails with it.

Workers wait for the conductor (``take``), the conductor waits for the buffer (``run`` follows its progress); the
learner waits for neither.  The conductor ends with its actor; a restarted one rebuilds everything from the journal and
from what the driver says next.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.buffer import Buffer
from actors.cursor import TaskCursor
from actors.evaluation import Attempt, Evaluation, EvaluationPlan
from actors.remote import Remote
from actors.tickets import Tickets
from protocol.events import EventLog
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFull, DiskFull
from protocol.staleness import Admission
from protocol.trajectory import GroupId, InfraFailure, Ticket

TRAIN = "train"
_PATROL_S = 2.0
_FOLLOW_S = 5.0


@dataclass(frozen=True, slots=True)
class ConductorSettings:
    run_id: str
    run_dir: Path
    node: str
    tasks: tuple[str, ...]
    group_size: int
    admission: Admission
    total_steps: int
    replacement_limit: int
    """How often a sample's ticket is issued again after infrastructure failed it."""
    ticket_deadline_s: float
    """A ticket that is out longer is lost; above the episode's own deadline."""
    seed: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the run stands.  The driver's to say, again and again: a restarted conductor learns it so."""

    training: bool = False
    """Groups may be opened."""
    published_step: int = 0
    """The step of the weights that every engine serves."""


@dataclass(frozen=True, slots=True)
class ConductorStatistics:
    waiting: int
    out: int
    open_groups: int
    ready_groups: int
    blocked: str
    """Why no new group is opened although admission allows it; empty when nothing blocks."""


@dataclass(frozen=True, slots=True)
class OpenGroup:
    task: str
    step: int
    """Published when it was opened: none of its tokens is made by older weights."""


class Conductor:
    def __init__(
        self, settings: ConductorSettings, buffer: Remote[Buffer], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._buffer, self._clock = settings, buffer, clock
        self._events = EventLog(settings.run_dir, "conductor", settings.node)
        self._cursor = TaskCursor(settings.tasks, settings.seed)
        self._tickets = Tickets()
        self._evaluation: Evaluation | None = None
        self._changed = asyncio.Condition()
        self._filling = asyncio.Lock()
        self._standing = Standing()
        self._restored = False
        self._open: dict[GroupId, OpenGroup] = {}
        self._live = self._passed_over = self._ready = self._seen = 0
        self._blocked = ""
        self._disk_full: DiskFull | None = None

    # -- the driver's side ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the buffer and look after overdue tickets until cancelled.  Raises :class:`DiskFull` when the disk
        lets no group be opened and nothing is under way any more."""
        await self._restore()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._patrol())

    async def stand(self, standing: Standing) -> None:
        """The run stands here.  When training ends, its tickets, waiting and out, are forgotten."""
        await self._restore()
        ended = self._standing.training and not standing.training
        self._standing = standing
        if ended:
            self._tickets.forget(TRAIN)
        await self._notify()

    async def oldest_running_step(self) -> int | None:
        """The oldest step whose weights a running group may hold tokens of; None when no group is open."""
        return min((group.step for group in self._open.values()), default=None)

    async def evaluate(self, plan: EvaluationPlan) -> Sequence[Attempt]:
        """Run ``plan`` to its end; attempts in plan order.  Raises :class:`InfraError` when infrastructure fails an
        attempt and all its replacements: an evaluation without it would not be the one that was asked for."""
        evaluation = self._evaluation = Evaluation(plan)
        for ticket in plan.tickets(self._settings.run_id):
            self._tickets.add(ticket)
        await self._notify()
        try:
            await evaluation.over.wait()
        finally:
            self._tickets.forget(plan.name)
            self._evaluation = None
        if evaluation.failure is not None:
            raise evaluation.failure
        return evaluation.attempts()

    async def statistics(self) -> ConductorStatistics:
        return ConductorStatistics(
            len(self._tickets.waiting),
            len(self._tickets.out),
            len(self._open),
            self._ready,
            self._blocked,
        )

    # -- the workers' side ---------------------------------------------------------------------------------------

    async def hello(self, worker: str, incarnation: str) -> None:
        """A worker has started.  What an earlier incarnation of it held is issued again."""
        me = f"{worker}#{incarnation}"
        for ticket in self._tickets.lost_with(worker, except_incarnation=me):
            await self._lost(ticket, InfraFailure.WORKER_DIED, "its worker died")

    async def take(self, worker: str, incarnation: str, free: int, timeout_s: float) -> list[Ticket]:
        """Up to ``free`` tickets; empty when there is none within ``timeout_s``."""
        deadline = self._clock() + self._settings.ticket_deadline_s
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._fill(free)
                    if tickets := self._tickets.hand_out(f"{worker}#{incarnation}", free, deadline):
                        return tickets
                    async with self._changed:
                        await self._changed.wait()
        except TimeoutError:
            return []

    async def finished(self, ticket: Ticket) -> None:
        """The buffer has acknowledged this ticket's trajectory."""
        self._tickets.finish(ticket)

    async def evaluated(self, ticket: Ticket, attempt: Attempt) -> None:
        evaluation = self._evaluation
        self._tickets.finish(ticket)
        if evaluation is None or evaluation.plan.name != ticket.purpose or not evaluation.add(ticket, attempt):
            return
        done = evaluation.attempts()
        self._events.emit(
            "eval.progress",
            name=ticket.purpose,
            done=len(done),
            total=evaluation.total,
            passed=sum(each.passed for each in done),
        )

    async def failed(self, ticket: Ticket, failure: InfraFailure, detail: str) -> None:
        """Infrastructure failed this ticket: it is issued again, or its sample abandoned."""
        if self._tickets.finish(ticket):
            await self._lost(ticket, failure, detail)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _lost(self, ticket: Ticket, failure: InfraFailure, detail: str) -> None:
        self._events.emit("episode.failed", trajectory=ticket.trajectory_id, reason=failure.value, detail=detail)
        if ticket.attempt < self._settings.replacement_limit:
            self._tickets.reissue(ticket, failure)
        elif ticket.purpose != TRAIN:
            self._give_up_evaluation(ticket, failure, detail)
        else:
            await self._buffer.call(Buffer.abandon, ticket.group, ticket.sample, failure)
        await self._notify()

    def _give_up_evaluation(self, ticket: Ticket, failure: InfraFailure, detail: str) -> None:
        if self._evaluation is not None and self._evaluation.plan.name == ticket.purpose:
            self._evaluation.give_up(ticket, failure, detail)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _may_open(self) -> int:
        settings, standing = self._settings, self._standing
        live = self._live - self._passed_over
        allowed = settings.admission.allowed(opened_live=live, published_step=standing.published_step)
        whole_run = settings.total_steps * settings.admission.groups_per_step
        return min(allowed, whole_run - live) if standing.training else 0

    async def _fill(self, wanted: int) -> None:
        """Open groups until ``wanted`` tickets wait, or admission, disk or budget says no."""
        async with self._filling:
            while len(self._tickets.waiting) < wanted and self._may_open() > 0:
                before = self._cursor.state()
                group, task = self._cursor.take()
                seeds = tuple(
                    random.Random(f"{self._settings.seed}/{group}/{sample}").getrandbits(31)
                    for sample in range(self._settings.group_size)
                )
                plan = GroupPlan(GroupId(group), task, seeds)
                try:
                    await self._buffer.call(Buffer.open_group, plan, self._cursor.state())
                except (BudgetFull, DiskFull) as full:
                    self._cursor.restore(before)
                    self._say_blocked(full)
                    return
                self._blocked, self._disk_full = "", None
                self._live += 1
                self._admit(plan, range(len(seeds)))

    def _say_blocked(self, full: BudgetFull | DiskFull) -> None:
        disk_full = full if isinstance(full, DiskFull) else None
        if not self._blocked or (disk_full is None) != (self._disk_full is None):
            self._events.emit("admission.blocked", reason=str(full))
        self._blocked, self._disk_full = str(full), disk_full

    def _admit(self, plan: GroupPlan, samples: Sequence[int]) -> None:
        self._open[plan.group] = OpenGroup(plan.task, self._standing.published_step)
        for sample in samples:
            self._tickets.add(plan.ticket(self._settings.run_id, sample))

    async def _restore(self) -> None:
        """Once, and before the first group: continue from the journal."""
        async with self._filling:
            if self._restored:
                return
            progress = await self._buffer.call(Buffer.wait_progress, -1, 0.0)
            state = await self._buffer.call(Buffer.cursor)
            groups = await self._buffer.call(Buffer.open_groups)
            self._seen, self._ready, self._passed_over = progress.seq, progress.ready, progress.passed_over
            self._live = progress.opened - progress.dropped
            if state:
                self._cursor.restore(state)
            for group in groups:
                self._admit(group.plan, group.missing)
            self._restored = True

    async def _follow(self) -> None:
        while True:
            progress = await self._buffer.call(Buffer.wait_progress, self._seen, _FOLLOW_S)
            self._seen, self._ready, self._passed_over = progress.seq, progress.ready, progress.passed_over
            for closing in progress.closed:
                self._live -= closing.outcome.drop_reason is not None
                group = self._open.pop(closing.group, None)
                if group is not None and closing.outcome is GroupOutcome.INFRA_SHORT:
                    self._cursor.give_back(group.task)
            await self._notify()

    async def _patrol(self) -> None:
        while True:
            await asyncio.sleep(_PATROL_S)
            for ticket in self._tickets.overdue(self._clock()):
                await self._lost(ticket, InfraFailure.DEADLINE, "no word from its worker within the deadline")
            if self._disk_full is not None and not self._tickets.out and not self._tickets.waiting:
                raise self._disk_full
