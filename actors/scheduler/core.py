"""What the conductor decides, apart from the actor that carries it out: a state machine without clock, I/O or Ray.

It owns the task cursor, the tickets and the groups that are open; time is an argument, and every decision goes to
``say`` as an event with its reason.  Whoever drives it keeps one promise: between :meth:`Dispatch.plan` and
:meth:`Dispatch.opened` the group is made durable in the journal.  The conductor drives it beside the buffer, and
:mod:`launch.simulate` on a virtual clock.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from actors.buffer.group_progress import GroupProgress
from actors.buffer.task_records import TaskRecords
from actors.scheduler.admission import (
    AdmissionDecision,
    AdmissionHold,
    GroupTimes,
    MeasuredTimes,
    RolloutFlow,
    RolloutTuning,
    decide_admission,
)
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.failure_rates import FailureRateTracker
from actors.scheduler.request_queue import AssignedRequest, RolloutRequestQueue, request_key
from actors.scheduler.task_sampler import TaskSampler
from protocol.errors import UserError
from protocol.events import EmitEvent, JsonValue
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFullError, ClosedGroup, DiskFullError, JournalOpenGroup
from protocol.staleness import AdmissionLimit, find_binding_step
from protocol.trajectory import TRAIN_PURPOSE, GroupId, InfraFailure, RolloutRequest

_FRUITLESS_STEPS = 8
"""Steps' worth of groups in a row that infrastructure wasted: what fails so long does not mend itself."""
_RATED_ATTEMPTS = 500
"""Of training, that end between two words on how many infrastructure failed: fifty in each tenth."""
_SHOWN_TASKS = 8
"""Of an epoch's order, in the event that tells of it; seed, epoch and what was heard give the rest again."""


_PLAIN = RolloutTuning()


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    run_id: str
    run_dir: Path
    node: str
    tasks: tuple[str, ...]
    group_size: int
    admission: AdmissionLimit
    total_steps: int
    replacement_limit: int
    """How often a sample's ticket is issued again after infrastructure failed it."""
    request_deadline_s: float
    """A ticket that is out longer is lost; above the episode's own deadline."""
    seed: int
    order: TaskOrder = TaskOrder.LISTED
    tuning: RolloutTuning = _PLAIN
    """What the run begins with."""


@dataclass(frozen=True, slots=True)
class SchedulerRunState:
    """Where the run stands.  The driver's to say, again and again: a restarted conductor learns it so."""

    training: bool = False
    """Groups may be opened."""
    published_step: int = 0
    """The step of the weights that every engine serves."""
    step_s: float | None = None
    """What a step takes the learner, waiting left out; None before the first."""
    lost_groups: int = 0
    """Groups' worth of trajectories that steps dropped for their age: others were leased in their place."""
    flow: RolloutFlow = RolloutFlow.RUN
    tuning: RolloutTuning | None = None
    """What a person has changed; None for what the run began with."""


class FailedRequestFate(StrEnum):
    """What becomes of a ticket that infrastructure failed."""

    REISSUED = "reissued"
    SETTLED = "settled"
    """Its sample came by another attempt, or its group has closed without it."""
    ABANDONED = "abandoned"
    """The last replacement of a training sample: the journal is to be told."""
    EVALUATION_FAILED = "evaluation_failed"
    """The last replacement of an evaluation's attempt."""


@dataclass(slots=True)
class _Group:
    task: str
    step: int
    """Published when it was opened: none of its tokens is made by older weights."""
    opened_s: float | None
    """None for one that was open before this conductor began."""


@dataclass(slots=True)
class SchedulerCore:
    settings: SchedulerSettings
    emit: EmitEvent
    task_sampler: TaskSampler = field(init=False)
    requests: RolloutRequestQueue = field(default_factory=RolloutRequestQueue)
    run_state: SchedulerRunState = field(default_factory=SchedulerRunState)
    hold: AdmissionHold | None = AdmissionHold.NOT_TRAINING
    """Why no group was opened when one was last asked for."""
    blocked_by: BudgetFullError | DiskFullError | None = None
    """What the journal said when it refused a group."""
    ready_groups: int = 0
    """Groups that closed and are not trained yet."""
    _planned: GroupPlan | None = None
    """Taken from the cursor, and not known to be open."""
    _progress: GroupProgress | None = None
    _open: dict[GroupId, _Group] = field(default_factory=dict[GroupId, _Group])
    _closed: dict[GroupId, int] = field(default_factory=dict[GroupId, int])
    """Ready group → its step; those that cannot be waiting any more are forgotten."""
    _leased: tuple[int, tuple[GroupId, ...]] = (-1, ())
    _owed: deque[ClosedGroup] = field(default_factory=deque[ClosedGroup])
    """Groups that fill no step and have not been replaced."""
    _times: GroupTimes = field(init=False)
    _rates: FailureRateTracker = field(default_factory=FailureRateTracker)
    _alerted: bool = False
    """The last word on the rates of failures was an advisory."""
    _wasted: int = 0
    """Groups in a row of which infrastructure left too little."""
    _failure: str = ""
    """What infrastructure failed last."""
    _emitted_hold: AdmissionHold | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        self.task_sampler = TaskSampler(settings.tasks, settings.seed, settings.order)
        self._times = GroupTimes(settings.admission.groups_per_step)

    # -- where the run stands ------------------------------------------------------------------------------------

    @property
    def tuning(self) -> RolloutTuning:
        return self.run_state.tuning or self.settings.tuning

    @property
    def measured_times(self) -> MeasuredTimes:
        return MeasuredTimes(self._times.mean_s, self.run_state.step_s)

    @property
    def open_groups(self) -> int:
        return len(self._open)

    @property
    def live_groups(self) -> int:
        """Groups opened, less those that fill no step."""
        progress = self._progress
        useless = progress.dropped + progress.passed_over if progress else 0
        return self.task_sampler.next_group - useless - self.run_state.lost_groups

    def set_run_state(self, standing: SchedulerRunState) -> None:
        """The run stands here.  When training begins, its tickets may leave; when it ends, they are forgotten."""
        before, tuning = self.run_state, self.tuning
        self.run_state = standing
        if before.training and not standing.training:
            self._planned = None
            self._emit_rates()
            if count := self.requests.drop_purpose(TRAIN_PURPOSE):
                self.emit("rollout_requests.dropped", tickets=count, reason="training_over")
        if standing.training:
            self.requests.release_held()
        if standing.flow is not before.flow:
            self.emit("scheduler.flow", flow=standing.flow.value, was=before.flow.value, open_groups=len(self._open))
        if self.tuning != tuning:
            new = self.tuning
            self.emit(
                "scheduler.retuned",
                in_flight=new.in_flight,
                lead=new.max_staleness,
                slack=new.slack,
                publish_every=new.publish_every,
                was=str(tuning),
            )

    def restore(
        self,
        state: bytes | None,
        records: tuple[TaskRecords, TaskRecords],
        progress: GroupProgress,
        closings: Iterable[ClosedGroup],
    ) -> None:
        """Go on from the journal: the newest cursor's state and the records that belong to it, where the journal's
        count stands, and what closed since that state."""
        self.task_sampler.restore(state, *records)
        for closing in closings:
            self.task_sampler.record_closing(closing)
        self._progress, self.ready_groups = progress, progress.ready

    def reopen_groups(self, groups: Sequence[JournalOpenGroup]) -> None:
        """Issue again, as soon as there is training, what was out when the former conductor ended."""
        for group in groups:
            self._open[group.plan.group] = _Group(group.plan.task, self.run_state.published_step, None)
            self._issue(group.plan, group.missing)
        if groups:
            missing = sum(len(group.missing) for group in groups)
            self.emit(
                "scheduler.restored", open_groups=len(groups), tickets=missing, next_group=self.task_sampler.next_group
            )

    # -- groups --------------------------------------------------------------------------------------------------

    def plan_group(self, free: int) -> GroupPlan | None:
        """The next group to open for ``free`` places, None when none should be; :attr:`hold` then says why.  It is the
        same one until :meth:`opened` or :meth:`refused`: whoever was to open it may have been cancelled, and nobody
        knows whether the journal has it."""
        if len(self.requests.waiting) >= self._assignable(free):
            self._set_hold(
                self._flow_hold() or (AdmissionHold.IN_FLIGHT if free > 0 and self._assignable(free) <= 0 else None)
            )
            return None
        if self._planned is not None and self._flow_hold() is None:
            return self._planned
        decision = self._decide()
        if decision.hold is not None:
            self._set_hold(decision.hold, lead=round(decision.max_staleness, 3))
            return None
        group, task = self._draw_task()
        seeds = tuple(
            random.Random(f"{self.settings.seed}/{group}/{sample}").getrandbits(31)
            for sample in range(self.settings.group_size)
        )
        self._planned = GroupPlan(GroupId(group), task, seeds)
        return self._planned

    def _draw_task(self) -> tuple[int, str]:
        """The cursor's next group and task; that it has ordered another epoch is told."""
        cursor, epoch = self.task_sampler, self.task_sampler.epoch
        taken = cursor.draw_task()
        if cursor.epoch != epoch:
            self.emit(
                "epoch.ordered",
                epoch=cursor.epoch,
                reason=cursor.order.value,
                tasks=len(cursor.tasks),
                tried=cursor.tried_tasks,
                heard=cursor.closings_seen,
                first=list(cursor.epoch_order[:_SHOWN_TASKS]),
            )
        return taken

    def mark_opened(self, plan: GroupPlan, now: float) -> None:
        """``plan`` and the cursor's state are durable: its tickets may leave, unless training has ended meanwhile."""
        self._planned = None
        per_step = self.settings.admission.groups_per_step
        step = self.live_groups - 1
        replaced = self._owed.popleft() if self._owed else None
        reason = f"for step {step // per_step + 1}"
        if replaced is not None:
            reason = f"replaces group {replaced.group}, {replaced.outcome.value}"
        self.emit(
            "group.admitted",
            group=plan.group,
            task=plan.task,
            reason=reason,
            expected_age=round(max(0.0, step / per_step - self.run_state.published_step), 3),
        )
        self.blocked_by, self.hold, self._emitted_hold = None, None, None
        self._open[plan.group] = _Group(plan.task, self.run_state.published_step, now)
        self._issue(plan, range(plan.size))

    def mark_refused(self, plan: GroupPlan, full: BudgetFullError | DiskFullError) -> None:
        """The journal has no room for ``plan``: its task is the next one still."""
        self._planned = None
        self.task_sampler.undo_draw(plan.task)
        if type(self.blocked_by) is not type(full):
            self.emit("admission.blocked", reason=str(full))
        self.blocked_by = full
        self._set_hold(AdmissionHold.DISK if isinstance(full, DiskFullError) else AdmissionHold.BYTES)

    def apply_progress(self, progress: GroupProgress, now: float) -> None:
        """What the journal says: which groups closed, and how many fill no step."""
        self._progress, self.ready_groups = progress, progress.ready
        for closing in progress.closed:
            group = self._open.pop(closing.group, None)
            if self.task_sampler.record_closing(closing):
                self.emit("task.requeued", task=closing.task, group=closing.group, reason=closing.outcome.value)
            self._wasted = self._wasted + 1 if closing.outcome is GroupOutcome.INFRA_SHORT else 0
            if closing.outcome.drop_reason is not None:
                self._owed.append(closing)
            if group is None:
                continue
            if group.opened_s is not None:
                self._times.add(now - group.opened_s)
            if closing.outcome is GroupOutcome.READY:
                self._closed[closing.group] = group.step
        if progress.closed:
            self._settle_closed({closing.group for closing in progress.closed})
        self._forget_trained()
        if self.run_state.flow is RolloutFlow.DRAIN and progress.closed and not self._open:
            self.emit("scheduler.drained", ready=self.ready_groups)

    @property
    def stop_reason(self) -> str | None:
        """Why no further group should be tried; None as long as some come to an end."""
        if self._wasted < _FRUITLESS_STEPS * self.settings.admission.groups_per_step:
            return None
        return (
            f"infrastructure wasted {self._wasted} groups in a row, at last by {self._failure}; nothing is lost: mend "
            "that and go on with the run"
        )

    def binding_step(self, step: int, leased: Sequence[GroupId]) -> int | None:
        """The step that bounds what the learner may do after it has taken step ``step`` + 1 on ``leased``; see
        :func:`protocol.staleness.binding_step`.  None when no running group is bound."""
        before, groups = self._leased
        if step > before:
            for group in groups:
                self._closed.pop(group, None)
        self._leased = (step, tuple(leased))
        rest = [(group, at) for group, at in self._closed.items() if group not in leased]
        return find_binding_step(
            running=[group.step for group in self._open.values()],
            ready=[at for _, at in rest],
            groups_per_step=self.settings.admission.groups_per_step,
        )

    def _forget_trained(self) -> None:
        """More groups than can be waiting have closed: the first of them are trained."""
        for group in list(self._closed)[: max(0, len(self._closed) - self.ready_groups - len(self._leased[1]))]:
            del self._closed[group]

    def _flow_hold(self) -> AdmissionHold | None:
        if not self.run_state.training:
            return AdmissionHold.NOT_TRAINING
        return {RolloutFlow.PAUSE: AdmissionHold.PAUSED, RolloutFlow.DRAIN: AdmissionHold.DRAINING}.get(
            self.run_state.flow
        )

    def _decide(self) -> AdmissionDecision:
        settings = self.settings
        if (gate := self._flow_hold()) is not None:
            return AdmissionDecision(0, gate, 0.0)
        return decide_admission(
            settings.admission,
            self.tuning,
            self.measured_times,
            live=self.live_groups,
            published_step=self.run_state.published_step,
            total_steps=settings.total_steps,
            publish_every=self.tuning.publish_every,
        )

    def _set_hold(self, hold: AdmissionHold | None, **fields: JsonValue) -> None:
        self.hold = hold
        if hold is not None and hold is not self._emitted_hold:
            self._emitted_hold = hold
            published = self.run_state.published_step
            self.emit("admission.held", reason=hold.value, live=self.live_groups, published_step=published, **fields)

    def _issue(self, plan: GroupPlan, samples: Sequence[int]) -> None:
        issue = self.requests.add if self.run_state.training else self.requests.hold_back
        for sample in samples:
            issue(plan.rollout_request(self.settings.run_id, sample))

    def require_open(self, group: GroupId) -> None:
        """Raises UserError."""
        if group not in self._open:
            oldest = f"; the oldest that is open is {min(self._open)}" if self._open else "; no group is open now"
            raise UserError(f"group {group} is not open: it has closed, or has not begun{oldest}")

    def cancel_samples(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """A person gives up a sample of an open group, or all that is to come of it: which samples those are."""

        def unwanted(ticket: RolloutRequest) -> bool:
            return ticket.purpose == TRAIN_PURPOSE and ticket.group == group and sample in {None, ticket.sample}

        tickets = self.requests.cancel(unwanted)
        for ticket in tickets:
            self.emit("rollout_request.cancelled", trajectory=ticket.trajectory_id, attempt=ticket.attempt)
        return tuple(sorted(ticket.sample for ticket in tickets))

    # -- tickets -------------------------------------------------------------------------------------------------

    def assign_requests(self, worker: str, free: int, now: float) -> list[RolloutRequest]:
        """Up to ``free`` waiting tickets for ``worker`` (name#incarnation)."""
        return self.requests.assign(worker, self._assignable(free), now, now + self.settings.request_deadline_s)

    def mark_arrived(self, request: RolloutRequest, now: float) -> bool:
        """What ``ticket`` was for is done: nobody need be sent for it any more.  False when ``ticket`` was not out (a
        lost worker had it, or a former conductor gave it)."""
        self._withdraw(lambda waiting: request_key(waiting) == request_key(request), "arrived")
        if (out := self.requests.finish(request)) is None:
            self.requests.settle(request_key(request))
            return False
        self._record_attempt(out, now, failed=False)
        return True

    def handle_failure(self, out: AssignedRequest, failure: InfraFailure, detail: str, now: float) -> FailedRequestFate:
        """Infrastructure failed a ticket, which is no longer ``out``."""
        ticket = out.request
        self._record_attempt(out, now, failed=True)
        self.emit("episode.failed", trajectory=ticket.trajectory_id, reason=failure.value, detail=detail)
        self._failure = f"{failure.value}: {' '.join(detail.split())[:300]}"
        if out.settled:
            return FailedRequestFate.SETTLED
        if ticket.attempt < self.settings.replacement_limit:
            again = self.requests.reissue(ticket, failure)
            self.emit(
                "rollout_request.reissued", trajectory=ticket.trajectory_id, attempt=again.attempt, reason=failure.value
            )
            return FailedRequestFate.REISSUED
        if ticket.purpose != TRAIN_PURPOSE:
            return FailedRequestFate.EVALUATION_FAILED
        self.emit(
            "sample.abandoned", trajectory=ticket.trajectory_id, attempts=ticket.attempt + 1, reason=failure.value
        )
        return FailedRequestFate.ABANDONED

    def _record_attempt(self, out: AssignedRequest, now: float, *, failed: bool) -> None:
        if out.request.purpose == TRAIN_PURPOSE:
            self._rates.add_attempt(now - out.assigned_at, failed=failed)
        if len(self._rates) >= _RATED_ATTEMPTS:
            self._emit_rates()

    def _emit_rates(self) -> None:
        if (rates := self._rates.pop_report()) is None:
            return
        self.emit("infra.failure_rates", attempts=rates.attempts, failed=rates.failed, by_decile=list(rates.by_decile))
        if (advice := rates.alert) is not None:
            self.emit("alert.raised", name="infra_rates", text=advice)
        elif self._alerted:
            self.emit("alert.resolved", name="infra_rates")
        self._alerted = advice is not None

    def _settle_closed(self, groups: Collection[GroupId]) -> None:
        """Nobody need be sent for a group that has closed."""

        def done(ticket: RolloutRequest) -> bool:
            return ticket.purpose == TRAIN_PURPOSE and ticket.group in groups

        self._withdraw(done, "group_closed")
        for key in [key for key, out in self.requests.assigned.items() if done(out.request)]:
            self.requests.settle(key)

    def _withdraw(self, needless: Callable[[RolloutRequest], bool], reason: str) -> None:
        for ticket in self.requests.withdraw(needless):
            self.emit(
                "rollout_request.withdrawn", trajectory=ticket.trajectory_id, attempt=ticket.attempt, reason=reason
            )

    def _assignable(self, free: int) -> int:
        """Tickets that may leave to ``free`` places."""
        if self.run_state.flow is RolloutFlow.PAUSE:
            return 0
        bound = self.tuning.in_flight
        return max(0, min(free, bound - len(self.requests.assigned))) if bound else free
