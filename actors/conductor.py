"""Which task next, for whom: tickets out, tickets back, evaluations.

What is decided, and why, is :mod:`actors.dispatch`'s; this actor carries it out.  Invariants:

- A ticket leaves only after its group and all its tickets are durable in the journal.
- Admission decides how many groups are open, never which: the cursor alone orders tasks.  It counts groups opened less
  those that fill no step (dropped, passed over) and those whose places steps lost to age, which no order of news can
  make too few.
- A sample ends in exactly one of: acknowledged trajectory, or abandoned, after its replacements failed or because a
  person gave it up.  A worker that dies has its tickets issued again.  An attempt of an evaluation is not abandoned:
  the evaluation fails with it.
- An evaluation beside training (:mod:`actors.exam`) has tickets of its own, which only its own worker takes.

Workers wait for the conductor (``take``), the conductor waits for the buffer (``run`` follows its progress); the
learner waits for neither, but under the policy ``wait``.  The conductor ends with its actor; a restarted one rebuilds
everything from the journal and from what the driver says next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from actors.buffer import Buffer
from actors.cursor import heard_by
from actors.dispatch import ConductorSettings, Dispatch, Fate, Standing
from actors.evaluation import Attempt, Evaluation, EvaluationPlan
from actors.exam import Exam, ExamPlan
from actors.remote import Remote
from actors.tickets import Out
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.journal import BudgetFull, DiskFull, GroupClosed
from protocol.trajectory import DropReason, GroupId, InfraFailure, Ticket

__all__ = ["Conductor", "ConductorSettings", "ConductorStatistics", "Standing"]

_PATROL_S = 2.0
_FOLLOW_S = 5.0


@dataclass(frozen=True, slots=True)
class ConductorStatistics:
    waiting: int
    out: int
    open_groups: int
    ready_groups: int
    blocked: str
    """Why the journal takes no new group although admission allows it; empty when nothing blocks."""
    budget_full: bool
    """It is the journal's budget that blocks, which a checkpoint frees."""


class Conductor:
    def __init__(
        self, settings: ConductorSettings, buffer: Remote[Buffer], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._buffer, self._clock = buffer, clock
        self._run_id, self._settings = settings.run_id, settings
        self._events = EventLog(settings.run_dir, "conductor", settings.node)
        self._dispatch = Dispatch(settings, self._events.emit)
        self._evaluation: Evaluation | None = None
        self._exam: Exam | None = None
        self._abandoned: dict[tuple[GroupId, int], str] = {}
        """Samples that are given up, and why, and the journal does not know it."""
        self._incarnations: dict[str, str] = {}
        """Worker → the one of it that spoke last."""
        self._changed = asyncio.Condition()
        self._filling = asyncio.Lock()
        self._restored = False
        self._seen = 0

    # -- the driver's side ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the buffer and look after overdue tickets until cancelled.  Raises :class:`DiskFull` when the disk
        lets no group be opened and nothing is under way any more, InfraError when all groups come to nothing."""
        await self._restore()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._patrol())

    async def stand(self, standing: Standing) -> None:
        """The run stands here.  When training ends, its tickets, waiting and out, are forgotten; no other comes."""
        await self._restore()
        self._dispatch.stand(standing)
        await self._notify()

    async def binding_step(self, step: int, leased: Sequence[GroupId]) -> int | None:
        """The step that bounds what the policy ``wait`` lets a learner do that has taken ``step`` steps and would take
        one more on ``leased``; None when no running group is bound."""
        await self._restore()
        return self._dispatch.binding_step(step, leased)

    async def evaluate(self, plan: EvaluationPlan) -> Sequence[Attempt]:
        """Run ``plan`` to its end; attempts in plan order.  Raises :class:`InfraError` when infrastructure fails an
        attempt and all its replacements: an evaluation without it would not be the one that was asked for."""
        evaluation = self._evaluation = Evaluation(plan)
        for ticket in plan.tickets(self._run_id):
            self._dispatch.tickets.add(ticket)
        await self._notify()
        try:
            await evaluation.over.wait()
        finally:
            self._dispatch.tickets.forget(plan.name)
            self._evaluation = None
        if evaluation.failure is not None:
            raise evaluation.failure
        return evaluation.attempts()

    async def examine(self, plan: ExamPlan) -> Sequence[Attempt]:
        """:meth:`evaluate` beside training: by :meth:`take_exam` alone, and behind the attempts that are kept already.
        One at a time."""
        settings = self._settings
        exam = self._exam = await asyncio.to_thread(
            Exam,
            plan,
            self._run_id,
            replacement_limit=settings.replacement_limit,
            ticket_deadline_s=settings.ticket_deadline_s,
            say=self._events.emit,
        )
        exam.tell()
        await self._notify()
        try:
            await exam.evaluation.over.wait()
        finally:
            if self._exam is exam:
                self._exam = None
        if exam.evaluation.failure is not None:
            raise exam.evaluation.failure
        return exam.evaluation.attempts()

    async def cancel(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """A person gives up a sample of an open group, or all of the group: the samples that were still to come, which
        whoever runs them may end.  Raises UserError where there is nothing of that to give up."""
        await self._restore()
        self._dispatch.require_open(group)
        if sample is None:
            await self._buffer.call(Buffer.cancel, group)
        cancelled = self._dispatch.cancel(group, sample)
        if sample is not None:
            if not cancelled:
                raise UserError(f"sample {sample} of group {group} does not run: it has arrived, or was given up")
            self._abandoned[group, sample] = DropReason.CANCELLED.value
            await self._abandon()
        await self._notify()
        return cancelled

    async def statistics(self) -> ConductorStatistics:
        dispatch = self._dispatch
        return ConductorStatistics(
            len(dispatch.tickets.waiting),
            len(dispatch.tickets.out),
            dispatch.open_groups,
            dispatch.ready,
            str(dispatch.blocked or ""),
            isinstance(dispatch.blocked, BudgetFull),
        )

    # -- the workers' side ---------------------------------------------------------------------------------------

    async def hello(self, worker: str, incarnation: str) -> None:
        """A worker has started.  What an earlier incarnation of it held is issued again, and a ``take`` of that one
        which still waits gets nothing any more."""
        self._incarnations[worker] = incarnation
        me = f"{worker}#{incarnation}"
        for out in self._dispatch.tickets.lost_with(worker, except_incarnation=me):
            await self._lost(out, InfraFailure.WORKER_DIED, "its worker died")
        if self._exam is not None:
            self._exam.hello(worker, me)
            await self._notify()

    async def gone(self, worker: str) -> None:
        """A worker is gone for good, with its node: what it held is issued again at once."""
        self._incarnations[worker] = ""
        for out in self._dispatch.tickets.lost_with(worker):
            await self._lost(out, InfraFailure.WORKER_DIED, "its node is gone")

    async def take(
        self, worker: str, incarnation: str, free: int, timeout_s: float, holds: Collection[str] | None = None
    ) -> list[Ticket]:
        """Up to ``free`` tickets; empty when there is none within ``timeout_s``, or when another incarnation of the
        worker has said hello.  ``holds``: what the worker has now, by :func:`actors.tickets.name_of`; what it was given
        beside that in an answer which a cut cable swallowed is given again."""
        return await self._take(worker, incarnation, timeout_s, lambda me: self._training_tickets(me, free, holds))

    async def take_exam(
        self, worker: str, incarnation: str, free: int, timeout_s: float, holds: Collection[str] | None = None
    ) -> list[Ticket]:
        """:meth:`take` for the worker of evaluations beside training."""
        return await self._take(worker, incarnation, timeout_s, lambda me: self._exam_tickets(me, free, holds))

    async def _take(
        self, worker: str, incarnation: str, timeout_s: float, tickets_for: Callable[[str], Awaitable[list[Ticket]]]
    ) -> list[Ticket]:
        try:
            async with asyncio.timeout(timeout_s):
                while self._incarnations.setdefault(worker, incarnation) == incarnation:
                    tickets = await tickets_for(f"{worker}#{incarnation}")
                    if tickets or self._incarnations[worker] != incarnation:
                        return tickets
                    async with self._changed:
                        await self._changed.wait()
        except TimeoutError:
            pass
        return []

    async def _training_tickets(self, me: str, free: int, holds: Collection[str] | None) -> list[Ticket]:
        if holds is not None and (unheard := self._dispatch.tickets.unheard(me, holds)):
            return self._repeat(unheard[:free])
        worker, _, incarnation = me.rpartition("#")
        await self._fill(free)
        if self._incarnations[worker] != incarnation:  # its successor came while the buffer was asked
            return []
        return self._dispatch.hand_out(me, free, self._clock())

    async def _exam_tickets(self, me: str, free: int, holds: Collection[str] | None) -> list[Ticket]:
        if self._exam is None:
            return []
        if holds is not None and (unheard := self._exam.unheard(me, holds)):
            return self._repeat(unheard[:free])
        return self._exam.hand_out(me, free, self._clock())

    def _repeat(self, unheard: list[Ticket]) -> list[Ticket]:
        for ticket in unheard:
            self._events.emit("ticket.repeated", trajectory=ticket.trajectory_id, attempt=ticket.attempt)
        return unheard

    async def finished(self, ticket: Ticket) -> None:
        """The buffer has acknowledged this ticket's trajectory."""
        if self._dispatch.arrived(ticket, self._clock()) and self._dispatch.tuning.in_flight:
            await self._notify()

    async def evaluated(self, ticket: Ticket, attempt: Attempt) -> None:
        if self._exam is not None and self._exam.name == ticket.purpose:
            self._exam.evaluated(ticket, attempt)
            await self._notify()
            return
        evaluation = self._evaluation
        self._dispatch.arrived(ticket, self._clock())
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
        if self._exam is not None and self._exam.name == ticket.purpose:
            self._exam.failed(ticket, failure, detail)
            await self._notify()
            return
        if (out := self._dispatch.tickets.finish(ticket)) is not None:
            await self._lost(out, failure, detail)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _lost(self, out: Out, failure: InfraFailure, detail: str) -> None:
        ticket = out.ticket
        match self._dispatch.lost(out, failure, detail, self._clock()):
            case Fate.ABANDONED:
                self._abandoned[ticket.group, ticket.sample] = failure.value
                await self._abandon()
            case Fate.EVALUATION_FAILED:
                if self._evaluation is not None and self._evaluation.plan.name == ticket.purpose:
                    self._give_up(self._evaluation, ticket, failure, detail)
            case Fate.REISSUED | Fate.SETTLED:
                pass
        await self._notify()

    def _give_up(self, evaluation: Evaluation, ticket: Ticket, failure: InfraFailure, detail: str) -> None:
        if said := evaluation.give_up(ticket, failure, detail):
            self._dispatch.tickets.withdraw(
                lambda waiting: (waiting.purpose, waiting.task) == (ticket.purpose, ticket.task)
            )
            self._events.emit("advisory", about="evaluation", text=said)

    async def _abandon(self) -> None:
        """Tell the journal which samples are given up; those that it cannot take now (a full disk), at the next
        patrol."""
        for (group, sample), reason in list(self._abandoned.items()):
            try:
                await self._buffer.call(Buffer.abandon, group, sample, reason)
            except InfraError:
                return
            self._abandoned.pop((group, sample), None)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _fill(self, wanted: int) -> None:
        """Open groups until ``wanted`` tickets wait, or admission, disk or budget says no."""
        dispatch = self._dispatch
        async with self._filling:
            while (plan := dispatch.plan(wanted)) is not None:
                try:
                    await self._buffer.call(Buffer.open_group, plan, dispatch.cursor.state())
                except (BudgetFull, DiskFull) as full:
                    dispatch.refused(plan, full)
                    return
                dispatch.opened(plan, self._clock())

    async def _restore(self) -> None:
        """Once, and before the first group: continue from the journal."""
        async with self._filling:
            if self._restored:
                return
            state = await self._buffer.call(Buffer.cursor)
            at_epoch, at_state = heard_by(state)
            records = (
                await self._buffer.call(Buffer.task_records, at_epoch),
                await self._buffer.call(Buffer.task_records, at_state),
            )
            closings: list[GroupClosed] = []
            progress = await self._buffer.call(Buffer.wait_progress, at_state, 0.0)
            while progress.closed:
                closings += progress.closed
                progress = await self._buffer.call(Buffer.wait_progress, progress.seq, 0.0)
            self._dispatch.restore(state, records, progress, closings)
            self._dispatch.reopen(await self._buffer.call(Buffer.open_groups))
            self._seen = progress.seq
            self._restored = True

    async def _follow(self) -> None:
        while True:
            progress = await self._buffer.call(Buffer.wait_progress, self._seen, _FOLLOW_S)
            self._seen = progress.seq
            self._dispatch.news(progress, self._clock())
            if (why := self._dispatch.hopeless) is not None:
                raise InfraError(why)
            await self._notify()

    async def _patrol(self) -> None:
        while True:
            await asyncio.sleep(_PATROL_S)
            await self._abandon()
            dispatch = self._dispatch
            for out in dispatch.tickets.overdue(self._clock()):
                await self._lost(out, InfraFailure.DEADLINE, "no word from its worker within the deadline")
            if self._exam is not None:
                self._exam.patrol(self._clock())
                await self._notify()
            full, tickets = dispatch.blocked, dispatch.tickets
            if isinstance(full, DiskFull) and not tickets.out and not tickets.waiting:
                raise full
