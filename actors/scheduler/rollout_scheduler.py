"""The scheduler's actor: requests go out to workers and come back, evaluations run, groups are opened in the buffer.

:mod:`actors.scheduler.core` decides; this actor carries the decisions out.  Invariants:

- A request leaves only after its group and all its requests are durable in the journal.
- Admission decides how many groups are open, never which: only the task sampler orders tasks.  Admission counts all
  opened groups except those that fill no step (dropped, passed over) and those that steps dropped as stale; no order
  of messages can make that count too small.
- No request goes to a worker whose machine lacks an image that its task needs, as far as the worker has reported
  (:mod:`actors.scheduler.task_images`); the task sampler puts such tasks off.
- Every sample ends either as an acknowledged trajectory or as abandoned, after its replacements failed or because a
  person cancelled it.  The requests of a worker that dies are issued again.  An attempt of an evaluation is never
  abandoned: the evaluation fails with it.
- Evaluations have requests of their own (:mod:`actors.scheduler.evaluation.requests`).  An online evaluation is served
  to its own worker only, any other to the workers of training.

Workers wait for the scheduler (``acquire_requests``), the scheduler waits for the buffer (``run`` follows its
progress); the learner waits for neither, except under the policy ``wait``.  The scheduler ends with its actor; a
restarted one restores everything from the journal and the driver's next report.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.core import SchedulerCore
from actors.scheduler.evaluation.plan import EvaluationPlan, OnlineEvaluationPlan
from actors.scheduler.evaluation.requests import EvaluationRequests
from actors.scheduler.evaluation.running_evaluations import RunningEvaluations
from actors.scheduler.journal_restore import restore_from_journal
from actors.scheduler.request_queue import OVERDUE, AssignedRequest
from actors.scheduler.settings import FailedRequestOutcome, SchedulerRunState, SchedulerSpec
from actors.scheduler.task_images import TaskImages
from actors.scheduler.worker_registry import WorkerRegistry
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog
from protocol.journal import BudgetFullError, DiskFullError
from protocol.trajectory import TRAIN_PURPOSE, DropReason, GroupId, InfraFailure, RolloutRequest

REISSUE_S = 2.0
"""Seconds between two checks for overdue requests."""
_FOLLOW_S = 5.0
"""Longest wait for the buffer's progress in one call."""


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """Counts of requests and groups, and whether the journal has room for more."""

    waiting: int
    assigned: int
    open_groups: int
    ready_groups: int
    budget_full: bool
    """True if the journal refuses new groups for its byte budget; a checkpoint frees it."""


class RolloutScheduler:
    """The scheduler's actor.  Its methods are called by the driver or by workers."""

    def __init__(
        self, spec: SchedulerSpec, buffer: Remote[TrajectoryBuffer], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec, self._buffer, self._clock = spec, buffer, clock
        self._events = EventLog(spec.run_dir, "scheduler", spec.node)
        self._core = SchedulerCore(spec, self._events.emit)
        self._workers = WorkerRegistry()
        self._evaluations = RunningEvaluations(spec, self._events.emit, self._notify)
        self._abandoned: dict[tuple[GroupId, int], str] = {}
        """Reasons of abandoned samples that the journal has not recorded yet."""
        self._changed = asyncio.Condition()
        """Notified when a waiting worker may get a request."""
        self._opening = asyncio.Lock()
        self._restored = False
        self._seen_closing = 0

    # -- the driver's side ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the buffer and reissue overdue requests until cancelled.

        Raises :class:`DiskFullError` if a full disk prevents new groups and no request is running any more, InfraError
        if infrastructure wastes all groups."""
        await self._restore()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_buffer())
            tasks.create_task(self._keep_reissuing())
            tasks.create_task(self._events.emit_loop_lag())

    async def set_run_state(self, state: SchedulerRunState) -> None:
        """Apply the state of the run.  When training ends, its requests, waiting and assigned, are dropped."""
        await self._restore()
        self._core.set_run_state(state)
        await self._notify()

    async def oldest_running_step(self, step: int, leased: Sequence[GroupId]) -> int | None:
        """Return the step that the policy ``wait`` sets as the bound for a learner that has taken ``step`` steps and
        would train ``leased`` next; None if no running group is bound."""
        await self._restore()
        return self._core.groups.staleness.oldest_running_step(step, leased)

    async def run_evaluation(self, plan: EvaluationPlan) -> Sequence[AttemptRecord]:
        """Run ``plan`` on the workers of training and return its attempts in plan order.

        Raises :class:`InfraError` if infrastructure fails an attempt and all its replacements, because the evaluation
        would be incomplete without it.  There is no attempt if none of its tasks can run."""
        return await self._evaluations.run(plan)

    async def run_online_evaluation(self, plan: OnlineEvaluationPlan) -> Sequence[AttemptRecord]:
        """Run ``plan`` during training, on the evaluation worker alone, continuing after the attempts on disk.

        Only one runs at a time.  Raises as :meth:`run_evaluation`, and OSError if the attempts cannot be read."""
        return await self._evaluations.run_online(plan)

    async def cancel_samples(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """Cancel one sample of an open group, or the whole group, on a person's request.

        Returns the samples that had not arrived; their episodes may be ended.  Raises UserError if there is nothing to
        cancel."""
        await self._restore()
        self._core.groups.require_open(group)
        if sample is None:
            await self._buffer.call(TrajectoryBuffer.cancel_group, group)
        cancelled = self._core.cancel_samples(group, sample)
        if sample is not None:
            if not cancelled:
                raise UserError(f"sample {sample} of group {group} is not running: it has arrived or was abandoned")
            self._abandoned[group, sample] = DropReason.CANCELLED.value
            await self._report_abandoned()
        await self._notify()
        return cancelled

    async def statistics(self) -> SchedulerStatistics:
        """Return the current counts."""
        groups, queues = self._core.groups, [self._core.requests, *(each.requests for each in self._evaluations.all)]
        return SchedulerStatistics(
            sum(len(queue.waiting) for queue in queues),
            sum(len(queue.assigned) for queue in queues),
            groups.open_groups,
            groups.ready_groups,
            isinstance(groups.blocked_by, BudgetFullError),
        )

    # -- the workers' side ---------------------------------------------------------------------------------------

    async def register_worker(self, worker: str, incarnation: str) -> None:
        """Register a worker that has started.

        The requests of its earlier incarnation are issued again, and its pending call returns none."""
        current = self._workers.register(worker, incarnation)
        self._core.images.forget_report(worker)
        await self._reclaim_from_worker(worker, "its worker died", except_incarnation=current)

    async def remove_worker(self, worker: str) -> None:
        """Remove a worker that is gone for good with its node; its requests are issued again at once."""
        self._workers.remove(worker)
        self._core.remove_worker(worker)
        await self._reclaim_from_worker(worker, "its node is gone")

    async def acquire_requests(
        self, worker: str, incarnation: str, free: int, timeout_s: float, holds: Collection[str] | None = None
    ) -> list[RolloutRequest]:
        """Return up to ``free`` requests; none if none is ready within ``timeout_s``, or if another incarnation of the
        worker has registered.

        ``holds`` has the ids of the worker's current attempts.  Other requests that are assigned to it, in a reply
        that was lost, are sent again."""
        return await self._acquire(
            worker, incarnation, timeout_s, lambda: self._assign(worker, incarnation, free, holds)
        )

    async def acquire_evaluation_requests(
        self, worker: str, incarnation: str, free: int, timeout_s: float, holds: Collection[str] | None = None
    ) -> list[RolloutRequest]:
        """Return requests of the online evaluation as :meth:`acquire_requests` does."""

        async def assign() -> list[RolloutRequest]:
            if self._evaluations.online is None:
                return []
            return self._assign_from(self._evaluations.online, f"{worker}#{incarnation}", free, holds)

        return await self._acquire(worker, incarnation, timeout_s, assign)

    async def _acquire(
        self, worker: str, incarnation: str, timeout_s: float, assign: Callable[[], Awaitable[list[RolloutRequest]]]
    ) -> list[RolloutRequest]:
        try:
            async with asyncio.timeout(timeout_s):
                while self._workers.is_current(worker, incarnation):
                    requests = await assign()
                    if requests or not self._workers.is_current(worker, incarnation):
                        return requests
                    async with self._changed:
                        await self._changed.wait()
        except TimeoutError:
            pass
        return []

    async def _assign(
        self, worker: str, incarnation: str, free: int, holds: Collection[str] | None
    ) -> list[RolloutRequest]:
        core, holder = self._core, f"{worker}#{incarnation}"
        if holds is not None and (undelivered := core.requests.find_undelivered(holder, holds)):
            return self._redeliver(undelivered[:free])
        core.images.add_worker(worker)
        await self._open_groups(free, worker)
        if not self._workers.is_current(worker, incarnation):  # its successor registered during the buffer's call
            return []
        requests = core.assign_requests(holder, free, self._clock())
        if (evaluation := self._evaluations.offline) is not None and len(requests) < free:
            left = core.assignable(free - len(requests), len(evaluation.requests.assigned))
            requests += self._assign_from(evaluation, holder, left, holds)
        return requests

    def _assign_from(
        self, evaluation: EvaluationRequests, holder: str, free: int, holds: Collection[str] | None
    ) -> list[RolloutRequest]:
        if holds is not None and (undelivered := evaluation.find_undelivered(holder, holds)):
            return self._redeliver(undelivered[:free])
        return evaluation.assign_requests(holder, free, self._clock(), self._core.startable_on(holder))

    def _redeliver(self, undelivered: list[RolloutRequest]) -> list[RolloutRequest]:
        for request in undelivered:
            self._events.emit("rollout_request.redelivered", trajectory=request.trajectory_id, attempt=request.attempt)
        return undelivered

    async def report_finished(self, request: RolloutRequest) -> None:
        """Record that the buffer has acknowledged the trajectory of ``request``."""
        if self._core.mark_arrived(request, self._clock()) and self._core.groups.tuning.in_flight:
            await self._notify()

    async def report_evaluated(self, request: RolloutRequest, attempt: AttemptRecord) -> None:
        """Record a finished attempt of an evaluation.  Raises OSError if it cannot be written."""
        await self._evaluations.report_evaluated(request, attempt)

    async def report_failed(self, request: RolloutRequest, failure: InfraFailure, detail: str) -> None:
        """Record that infrastructure failed ``request``: it is issued again, or its sample is abandoned."""
        if request.purpose != TRAIN_PURPOSE:
            await self._evaluations.report_failed(request, failure, detail)
        elif (out := self._core.requests.finish(request)) is not None:
            await self._handle_failure(out, failure, detail)

    async def report_images(self, worker: str, incarnation: str, images: TaskImages) -> Sequence[str]:
        """Record which images of its tasks a worker has.  Return all tasks of the run in the order in which it needs
        their images."""
        await self._restore()
        if self._workers.is_current(worker, incarnation):
            self._core.record_images(worker, images)
            await self._notify()
        evaluated = [task for each in self._evaluations.all for task in each.plan.tasks]
        return list(dict.fromkeys((*evaluated, *self._core.upcoming_tasks())))

    # -- failures ------------------------------------------------------------------------------------------------

    async def _reclaim_from_worker(self, worker: str, detail: str, *, except_incarnation: str = "") -> None:
        for out in self._core.requests.reclaim_from_worker(worker, except_incarnation=except_incarnation):
            await self._handle_failure(out, InfraFailure.WORKER_DIED, detail)
        for evaluation in self._evaluations.all:
            evaluation.reclaim_from_worker(worker, detail, except_incarnation=except_incarnation)
        await self._notify()

    async def _handle_failure(self, out: AssignedRequest, failure: InfraFailure, detail: str) -> None:
        if self._core.handle_failure(out, failure, detail, self._clock()) is FailedRequestOutcome.ABANDONED:
            self._abandoned[out.request.group, out.request.sample] = failure.value
            await self._report_abandoned()
        await self._notify()

    async def _report_abandoned(self) -> None:
        """Record abandoned samples in the journal; if it cannot record them now (disk full), try again later."""
        for (group, sample), reason in list(self._abandoned.items()):
            try:
                await self._buffer.call(TrajectoryBuffer.abandon_sample, group, sample, reason)
            except InfraError:
                return
            self._abandoned.pop((group, sample), None)

    async def _keep_reissuing(self) -> None:
        core = self._core
        while True:
            await asyncio.sleep(REISSUE_S)
            if (why := core.stop_reason) is not None:
                raise InfraError(why)
            await self._report_abandoned()
            for out in core.requests.reclaim_overdue(self._clock()):
                await self._handle_failure(out, InfraFailure.DEADLINE, OVERDUE)
            for evaluation in self._evaluations.all:
                evaluation.reissue_overdue(self._clock())
            await self._notify()
            queues = [core.requests, *(each.requests for each in self._evaluations.all)]
            blocked_by = core.groups.blocked_by
            if isinstance(blocked_by, DiskFullError) and not any(queue.assigned or queue.waiting for queue in queues):
                raise blocked_by

    # -- the buffer ----------------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Restore the core from the journal, once and before the first group."""
        async with self._opening:
            if not self._restored:
                self._seen_closing = await restore_from_journal(self._core, self._buffer)
                self._restored = True

    async def _open_groups(self, wanted: int, worker: str) -> None:
        """Open groups until ``wanted`` requests wait that ``worker`` can start, or admission, disk or budget
        refuses."""
        core = self._core
        async with self._opening:
            while (plan := core.plan_group(wanted, worker)) is not None:
                try:
                    await self._buffer.call(TrajectoryBuffer.open_group, plan, core.groups.task_sampler.state())
                except (BudgetFullError, DiskFullError) as error:
                    core.mark_refused(plan, error)
                    return
                core.mark_opened(plan, self._clock())

    async def _follow_buffer(self) -> None:
        while True:
            progress = await self._buffer.call(TrajectoryBuffer.wait_progress, self._seen_closing, _FOLLOW_S)
            self._seen_closing = progress.seq
            self._core.apply_progress(progress, self._clock())
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
