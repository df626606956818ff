"""The scheduler's decisions as a state machine without clock, I/O or Ray; the actor carries them out.

It joins groups and their admission (:mod:`~actors.scheduler.group_admission`) with the requests for their samples
(:mod:`~actors.scheduler.training_requests`).  Time is an argument, and every decision is passed to ``emit`` as an event
with its reason.  The scheduler's actor drives it in a run, and :mod:`launch.simulate` on a virtual clock; both make a
group durable between :meth:`SchedulerCore.plan_group` and :meth:`SchedulerCore.mark_opened`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from actors.buffer.group_progress import GroupProgress
from actors.buffer.task_records import TaskRecords
from actors.scheduler.admission import AdmissionHold, RolloutFlow
from actors.scheduler.group_admission import GroupAdmission
from actors.scheduler.request_queue import AssignedRequest, RolloutRequestQueue
from actors.scheduler.settings import FailedRequestOutcome, SchedulerRunState, SchedulerSpec
from actors.scheduler.task_images import TaskImages, TaskImageStates
from actors.scheduler.training_requests import TrainingRequests
from protocol.events import EmitEvent
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFullError, ClosedGroup, DiskFullError, JournalOpenGroup
from protocol.trajectory import GroupId, InfraFailure, RolloutRequest

_MAX_WASTED_STEPS = 8
"""Number of steps' worth of consecutive groups that infrastructure may waste before the run ends."""


class SchedulerCore:
    """Groups and requests of training, kept consistent with each other."""

    def __init__(self, spec: SchedulerSpec, emit: EmitEvent) -> None:
        self.spec, self._emit = spec, emit
        self.groups = GroupAdmission(spec, emit)
        self.training = TrainingRequests(spec.settings.replacement_limit, emit)
        self.images = TaskImageStates()
        self._wasted_groups = 0
        """Number of consecutive groups that infrastructure left with too few members."""

    @property
    def requests(self) -> RolloutRequestQueue:
        """The requests of training."""
        return self.training.queue

    @property
    def stop_reason(self) -> str | None:
        """Reason to end the run because no group fills any more or no task can be used, else None."""
        if self.groups.task_sampler.unusable.issuperset(self.spec.tasks):
            return (
                f"none of the {len(self.spec.tasks)} tasks can be used, as the log says of each (`longshore images "
                "prefetch` tries their images): repair them and resume the run"
            )
        if self._wasted_groups < _MAX_WASTED_STEPS * self.spec.admission.groups_per_step:
            return None
        return (
            f"infrastructure wasted {self._wasted_groups} groups in a row, most recently by "
            f"{self.training.last_failure}; no progress is lost: fix the cause and resume the run"
        )

    # -- the state of the run ------------------------------------------------------------------------------------

    def set_run_state(self, state: SchedulerRunState) -> None:
        """Apply the state of the run.  Requests may leave once training begins, and are dropped when it ends."""
        groups = self.groups
        before, tuning_before, groups.run_state = groups.run_state, groups.tuning, state
        if before.training and not state.training:
            groups.forget_planned()
            self.training.rates.emit_report()
            if count := self.requests.clear():
                self._emit("rollout_request.dropped", requests=count, reason="training_over")
        if state.training:
            self.requests.release_held()
        if state.flow is not before.flow:
            self._emit("scheduler.flow", flow=state.flow.value, was=before.flow.value, open_groups=groups.open_groups)
        if (tuning := groups.tuning) != tuning_before:
            self._emit(
                "scheduler.retuned",
                in_flight=tuning.in_flight,
                max_steps_ahead=tuning.max_steps_ahead,
                slack=tuning.slack,
                publish_every=tuning.publish_every,
                was=str(tuning_before),
            )

    def restore(
        self,
        state: bytes | None,
        records: tuple[TaskRecords, TaskRecords],
        progress: GroupProgress,
        closings: Iterable[ClosedGroup],
    ) -> None:
        """Continue from the journal.

        ``state`` and ``records`` are the newest state of the task sampler and the records that belong to it;
        ``progress`` has the journal's counts, and ``closings`` are the groups that closed since ``state``."""
        self.groups.task_sampler.restore(state, *records)
        self.groups.restore(progress, list(closings))

    def reopen_groups(self, groups: Sequence[JournalOpenGroup]) -> None:
        """Issue the requests of an earlier scheduler again once training begins."""
        for group in groups:
            self.groups.reopen(group.plan)
            self._issue(group.plan, group.missing)
        if groups:
            missing = sum(len(group.missing) for group in groups)
            next_group = self.groups.task_sampler.next_group
            self._emit("scheduler.restored", open_groups=len(groups), requests=missing, next_group=next_group)

    # -- groups --------------------------------------------------------------------------------------------------

    def plan_group(self, free: int, worker: str = "") -> GroupPlan | None:
        """Return the next group to open for ``free`` slots of ``worker``, or None with the reason in ``groups.hold``.

        See :meth:`GroupAdmission.plan_next`."""
        assignable = self.assignable(free)
        if sum(not self.images.is_missing(each.task, worker) for each in self.requests.waiting) >= assignable:
            in_flight_full = free > 0 and assignable <= 0
            self.groups.set_hold(self.groups.flow_hold() or (AdmissionHold.IN_FLIGHT if in_flight_full else None))
            return None
        return self.groups.plan_next(lambda task: self.images.can_start(task, worker))

    def mark_opened(self, plan: GroupPlan, now: float) -> None:
        """Record that ``plan`` is durable: its requests may leave, unless training has ended meanwhile."""
        self.groups.mark_opened(plan, now)
        self._issue(plan, range(plan.size))

    def mark_refused(self, plan: GroupPlan, error: BudgetFullError | DiskFullError) -> None:
        """Record that the journal refused ``plan``."""
        self.groups.mark_refused(plan, error)

    def apply_progress(self, progress: GroupProgress, now: float) -> None:
        """Apply the journal's counts of closed groups."""
        self.groups.apply_progress(progress, now)
        for closing in progress.closed:
            self._wasted_groups = self._wasted_groups + 1 if closing.outcome is GroupOutcome.TOO_FEW_MEMBERS else 0
        if progress.closed:
            self.training.settle_closed({closing.group for closing in progress.closed})

    # -- images --------------------------------------------------------------------------------------------------

    def record_images(self, worker: str, images: TaskImages) -> None:
        """Record a worker's report about its tasks' images; tasks are excluded while no worker can make theirs."""
        with self._counting_images():
            self.images.record(worker, images)

    def remove_worker(self, worker: str) -> None:
        """Forget a worker that is gone for good; tasks whose images only it could make are excluded."""
        with self._counting_images():
            self.images.remove_worker(worker)

    @contextmanager
    def _counting_images(self) -> Generator[None]:
        """Apply what the block changes of the images' states."""
        before = self.images.count(self.spec.tasks)
        yield
        self.groups.exclude_for_images(self.images.failures(), self.images.can_start_somewhere)
        if (counts := self.images.count(self.spec.tasks)) != before:
            self._emit("images.counted", **counts._asdict())

    def upcoming_tasks(self) -> Sequence[str]:
        """Return the training tasks in the order in which their images are needed."""
        waiting = (request.task for request in (*self.requests.waiting, *self.requests.held_back))
        return list(dict.fromkeys((*waiting, *self.groups.task_sampler.upcoming_tasks())))

    # -- requests ------------------------------------------------------------------------------------------------

    def assignable(self, free: int, also_in_flight: int = 0) -> int:
        """Return how many requests may leave to ``free`` slots while ``also_in_flight`` others are in flight."""
        if self.groups.run_state.flow is RolloutFlow.PAUSE:
            return 0
        bound = self.groups.tuning.in_flight
        return max(0, min(free, bound - len(self.requests.assigned) - also_in_flight)) if bound else free

    def assign_requests(self, worker: str, free: int, now: float) -> list[RolloutRequest]:
        """Assign up to ``free`` waiting requests whose images ``worker`` (``NAME#INCARNATION``) does not wait for."""
        deadline = now + self.spec.request_deadline_s
        return self.requests.assign(worker, self.assignable(free), now, deadline, self.startable_on(worker))

    def startable_on(self, worker: str) -> Callable[[RolloutRequest], bool]:
        """Return a function that says whether a request need not wait for an image on ``worker``
        (``NAME#INCARNATION``)."""
        name = worker.rpartition("#")[0]
        return lambda request: not self.images.is_missing(request.task, name)

    def mark_arrived(self, request: RolloutRequest, now: float) -> bool:
        """Record that a sample has arrived; see :meth:`TrainingRequests.mark_arrived`."""
        return self.training.mark_arrived(request, now)

    def handle_failure(
        self, out: AssignedRequest, failure: InfraFailure, detail: str, now: float
    ) -> FailedRequestOutcome:
        """Decide what happens to a failed request; see :meth:`TrainingRequests.handle_failure`.

        A task that is itself at fault in every attempt at a sample is excluded."""
        outcome = self.training.handle_failure(out, failure, detail, now)
        if outcome is FailedRequestOutcome.ABANDONED and failure is InfraFailure.TASK_FAULT:
            self.groups.exclude_task(out.request.task, detail)
        return outcome

    def cancel_samples(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """Cancel samples on a person's request; see :meth:`TrainingRequests.cancel_samples`."""
        return self.training.cancel_samples(group, sample)

    def _issue(self, plan: GroupPlan, samples: Sequence[int]) -> None:
        issue = self.requests.add if self.groups.run_state.training else self.requests.hold_back
        for sample in samples:
            issue(plan.rollout_request(self.spec.run_id, sample))
