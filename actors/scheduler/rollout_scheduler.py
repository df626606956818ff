"""Which task next, for whom: tickets out, tickets back, evaluations.

What is decided, and why, is :mod:`actors.scheduler.core`'s; this actor carries it out.  Invariants:

- A ticket leaves only after its group and all its tickets are durable in the journal.
- Admission decides how many groups are open, never which: the cursor alone orders tasks.  It counts groups opened less
  those that fill no step (dropped, passed over) and those whose places steps lost to age, which no order of news can
  make too few.
- A sample ends in exactly one of: acknowledged trajectory, or abandoned, after its replacements failed or because a
  person gave it up.  A worker that dies has its tickets issued again.  An attempt of an evaluation is not abandoned:
  the evaluation fails with it.
- An evaluation beside training (:mod:`actors.scheduler.online_evaluation`) has tickets of its own, which only its own worker takes.

Workers wait for the conductor (``take``), the conductor waits for the buffer (``run`` follows its progress); the
learner waits for neither, but under the policy ``wait``.  The conductor ends with its actor; a restarted one rebuilds
everything from the journal and from what the driver says next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.core import FailedRequestFate, SchedulerCore, SchedulerRunState, SchedulerSettings
from actors.scheduler.evaluation import EvaluationAttempt, EvaluationPlan, EvaluationTracker
from actors.scheduler.online_evaluation import OnlineEvaluationPlan, OnlineEvaluationState
from actors.scheduler.request_queue import AssignedRequest
from actors.scheduler.task_sampler import closings_seen_by
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.journal import BudgetFullError, ClosedGroup, DiskFullError
from protocol.trajectory import DropReason, GroupId, InfraFailure, RolloutRequest

__all__ = ["RolloutScheduler", "SchedulerRunState", "SchedulerSettings", "SchedulerStatistics"]

_REISSUE_S = 2.0
_FOLLOW_S = 5.0


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    waiting: int
    assigned: int
    open_groups: int
    ready_groups: int
    blocked: str
    """Why the journal takes no new group although admission allows it; empty when nothing blocks."""
    budget_full: bool
    """It is the journal's budget that blocks, which a checkpoint frees."""


class RolloutScheduler:
    def __init__(
        self, settings: SchedulerSettings, buffer: Remote[TrajectoryBuffer], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._buffer, self._clock = buffer, clock
        self._run_id, self._settings = settings.run_id, settings
        self._events = EventLog(settings.run_dir, "scheduler", settings.node)
        self._core = SchedulerCore(settings, self._events.emit)
        self._evaluation: EvaluationTracker | None = None
        self._online_evaluation: OnlineEvaluationState | None = None
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
            tasks.create_task(self._follow_buffer())
            tasks.create_task(self._reissue_overdue())

    async def set_run_state(self, standing: SchedulerRunState) -> None:
        """The run stands here.  When training ends, its tickets, waiting and out, are forgotten; no other comes."""
        await self._restore()
        self._core.set_run_state(standing)
        await self._notify()

    async def binding_step(self, step: int, leased: Sequence[GroupId]) -> int | None:
        """The step that bounds what the policy ``wait`` lets a learner do that has taken ``step`` steps and would take
        one more on ``leased``; None when no running group is bound."""
        await self._restore()
        return self._core.binding_step(step, leased)

    async def run_evaluation(self, plan: EvaluationPlan) -> Sequence[EvaluationAttempt]:
        """Run ``plan`` to its end; attempts in plan order.  Raises :class:`InfraError` when infrastructure fails an
        attempt and all its replacements: an evaluation without it would not be the one that was asked for."""
        evaluation = self._evaluation = EvaluationTracker(plan)
        for ticket in plan.make_requests(self._run_id):
            self._core.requests.add(ticket)
        await self._notify()
        try:
            await evaluation.finished.wait()
        finally:
            self._core.requests.drop_purpose(plan.name)
            self._evaluation = None
        if evaluation.failure is not None:
            raise evaluation.failure
        return evaluation.attempts()

    async def run_online_evaluation(self, plan: OnlineEvaluationPlan) -> Sequence[EvaluationAttempt]:
        """:meth:`evaluate` beside training: by :meth:`take_exam` alone, and behind the attempts that are kept already.
        One at a time."""
        settings = self._settings
        exam = self._online_evaluation = await asyncio.to_thread(
            OnlineEvaluationState,
            plan,
            self._run_id,
            replacement_limit=settings.replacement_limit,
            ticket_deadline_s=settings.request_deadline_s,
            emit=self._events.emit,
        )
        exam.emit_progress()
        await self._notify()
        try:
            await exam.tracker.finished.wait()
        finally:
            if self._online_evaluation is exam:
                self._online_evaluation = None
        if exam.tracker.failure is not None:
            raise exam.tracker.failure
        return exam.tracker.attempts()

    async def cancel_samples(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """A person gives up a sample of an open group, or all of the group: the samples that were still to come, which
        whoever runs them may end.  Raises UserError where there is nothing of that to give up."""
        await self._restore()
        self._core.require_open(group)
        if sample is None:
            await self._buffer.call(TrajectoryBuffer.cancel_group, group)
        cancelled = self._core.cancel_samples(group, sample)
        if sample is not None:
            if not cancelled:
                raise UserError(f"sample {sample} of group {group} does not run: it has arrived, or was given up")
            self._abandoned[group, sample] = DropReason.CANCELLED.value
            await self._abandon()
        await self._notify()
        return cancelled

    async def statistics(self) -> SchedulerStatistics:
        dispatch = self._core
        return SchedulerStatistics(
            len(dispatch.requests.waiting),
            len(dispatch.requests.assigned),
            dispatch.open_groups,
            dispatch.ready_groups,
            str(dispatch.blocked_by or ""),
            isinstance(dispatch.blocked_by, BudgetFullError),
        )

    # -- the workers' side ---------------------------------------------------------------------------------------

    async def register_worker(self, worker: str, incarnation: str) -> None:
        """A worker has started.  What an earlier incarnation of it held is issued again, and a ``take`` of that one
        which still waits gets nothing any more."""
        self._incarnations[worker] = incarnation
        me = f"{worker}#{incarnation}"
        for out in self._core.requests.reclaim_from_worker(worker, except_incarnation=me):
            await self._handle_failure(out, InfraFailure.WORKER_DIED, "its worker died")
        if self._online_evaluation is not None:
            self._online_evaluation.register_worker(worker, me)
            await self._notify()

    async def remove_worker(self, worker: str) -> None:
        """A worker is gone for good, with its node: what it held is issued again at once."""
        self._incarnations[worker] = ""
        for out in self._core.requests.reclaim_from_worker(worker):
            await self._handle_failure(out, InfraFailure.WORKER_DIED, "its node is gone")

    async def acquire_requests(
        self, worker: str, incarnation: str, free: int, timeout_s: float, holds: Collection[str] | None = None
    ) -> list[RolloutRequest]:
        """Up to ``free`` tickets; empty when there is none within ``timeout_s``, or when another incarnation of the
        worker has said hello.  ``holds``: what the worker has now, by :func:`actors.scheduler.request_queue.name_of`; what it was given
        beside that in an answer which a cut cable swallowed is given again."""
        return await self._acquire(worker, incarnation, timeout_s, lambda me: self._training_requests(me, free, holds))

    async def acquire_evaluation_requests(
        self, worker: str, incarnation: str, free: int, timeout_s: float, holds: Collection[str] | None = None
    ) -> list[RolloutRequest]:
        """:meth:`take` for the worker of evaluations beside training."""
        return await self._acquire(
            worker, incarnation, timeout_s, lambda me: self._evaluation_requests(me, free, holds)
        )

    async def _acquire(
        self,
        worker: str,
        incarnation: str,
        timeout_s: float,
        tickets_for: Callable[[str], Awaitable[list[RolloutRequest]]],
    ) -> list[RolloutRequest]:
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

    async def _training_requests(self, me: str, free: int, holds: Collection[str] | None) -> list[RolloutRequest]:
        if holds is not None and (unheard := self._core.requests.find_undelivered(me, holds)):
            return self._repeat(unheard[:free])
        worker, _, incarnation = me.rpartition("#")
        await self._open_groups(free)
        if self._incarnations[worker] != incarnation:  # its successor came while the buffer was asked
            return []
        return self._core.assign_requests(me, free, self._clock())

    async def _evaluation_requests(self, me: str, free: int, holds: Collection[str] | None) -> list[RolloutRequest]:
        if self._online_evaluation is None:
            return []
        if holds is not None and (unheard := self._online_evaluation.find_undelivered(me, holds)):
            return self._repeat(unheard[:free])
        return self._online_evaluation.assign_requests(me, free, self._clock())

    def _repeat(self, unheard: list[RolloutRequest]) -> list[RolloutRequest]:
        for ticket in unheard:
            self._events.emit("rollout_request.redelivered", trajectory=ticket.trajectory_id, attempt=ticket.attempt)
        return unheard

    async def report_finished(self, request: RolloutRequest) -> None:
        """The buffer has acknowledged this ticket's trajectory."""
        if self._core.mark_arrived(request, self._clock()) and self._core.tuning.in_flight:
            await self._notify()

    async def report_evaluated(self, request: RolloutRequest, attempt: EvaluationAttempt) -> None:
        if self._online_evaluation is not None and self._online_evaluation.name == request.purpose:
            self._online_evaluation.report_evaluated(request, attempt)
            await self._notify()
            return
        evaluation = self._evaluation
        self._core.mark_arrived(request, self._clock())
        if (
            evaluation is None
            or evaluation.plan.name != request.purpose
            or not evaluation.add_attempt(request, attempt)
        ):
            return
        done = evaluation.attempts()
        self._events.emit(
            "eval.progress",
            name=request.purpose,
            done=len(done),
            total=evaluation.total,
            passed=sum(each.passed for each in done),
        )

    async def report_failed(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> None:
        """Infrastructure failed this ticket: it is issued again, or its sample abandoned."""
        if self._online_evaluation is not None and self._online_evaluation.name == request.purpose:
            self._online_evaluation.report_failed(request, failure, detail)
            await self._notify()
            return
        if (out := self._core.requests.finish(request)) is not None:
            await self._handle_failure(out, failure, detail)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _handle_failure(self, out: AssignedRequest, failure: InfraFailure, detail: str) -> None:
        ticket = out.request
        match self._core.handle_failure(out, failure, detail, self._clock()):
            case FailedRequestFate.ABANDONED:
                self._abandoned[ticket.group, ticket.sample] = failure.value
                await self._abandon()
            case FailedRequestFate.EVALUATION_FAILED:
                if self._evaluation is not None and self._evaluation.plan.name == ticket.purpose:
                    self._give_up(self._evaluation, ticket, failure, detail)
            case FailedRequestFate.REISSUED | FailedRequestFate.SETTLED:
                pass
        await self._notify()

    def _give_up(
        self, evaluation: EvaluationTracker, request: RolloutRequest, failure: InfraFailure, detail: str
    ) -> None:
        if said := evaluation.give_up_attempt(request, failure, detail):
            self._core.requests.withdraw(
                lambda waiting: (waiting.purpose, waiting.task) == (request.purpose, request.task)
            )
            self._events.emit("alert.raised", name="evaluation", text=said)

    async def _abandon(self) -> None:
        """Tell the journal which samples are given up; those that it cannot take now (a full disk), at the next
        patrol."""
        for (group, sample), reason in list(self._abandoned.items()):
            try:
                await self._buffer.call(TrajectoryBuffer.abandon_sample, group, sample, reason)
            except InfraError:
                return
            self._abandoned.pop((group, sample), None)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _open_groups(self, wanted: int) -> None:
        """Open groups until ``wanted`` tickets wait, or admission, disk or budget says no."""
        dispatch = self._core
        async with self._filling:
            while (plan := dispatch.plan_group(wanted)) is not None:
                try:
                    await self._buffer.call(TrajectoryBuffer.open_group, plan, dispatch.task_sampler.state())
                except (BudgetFullError, DiskFullError) as full:
                    dispatch.mark_refused(plan, full)
                    return
                dispatch.mark_opened(plan, self._clock())

    async def _restore(self) -> None:
        """Once, and before the first group: continue from the journal."""
        async with self._filling:
            if self._restored:
                return
            state = await self._buffer.call(TrajectoryBuffer.sampler_state)
            at_epoch, at_state = closings_seen_by(state)
            records = (
                await self._buffer.call(TrajectoryBuffer.task_records, at_epoch),
                await self._buffer.call(TrajectoryBuffer.task_records, at_state),
            )
            closings: list[ClosedGroup] = []
            progress = await self._buffer.call(TrajectoryBuffer.wait_progress, at_state, 0.0)
            while progress.closed:
                closings += progress.closed
                progress = await self._buffer.call(TrajectoryBuffer.wait_progress, progress.seq, 0.0)
            self._core.restore(state, records, progress, closings)
            self._core.reopen_groups(await self._buffer.call(TrajectoryBuffer.open_groups))
            self._seen = progress.seq
            self._restored = True

    async def _follow_buffer(self) -> None:
        while True:
            progress = await self._buffer.call(TrajectoryBuffer.wait_progress, self._seen, _FOLLOW_S)
            self._seen = progress.seq
            self._core.apply_progress(progress, self._clock())
            if (why := self._core.stop_reason) is not None:
                raise InfraError(why)
            await self._notify()

    async def _reissue_overdue(self) -> None:
        while True:
            await asyncio.sleep(_REISSUE_S)
            await self._abandon()
            dispatch = self._core
            for out in dispatch.requests.reclaim_overdue(self._clock()):
                await self._handle_failure(out, InfraFailure.DEADLINE, "no word from its worker within the deadline")
            if self._online_evaluation is not None:
                self._online_evaluation.reissue_overdue(self._clock())
                await self._notify()
            full, tickets = dispatch.blocked_by, dispatch.requests
            if isinstance(full, DiskFullError) and not tickets.assigned and not tickets.waiting:
                raise full
