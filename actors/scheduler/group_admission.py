"""The open groups, and the choice of the next one and its time.  A state machine without clock or I/O.

The caller must make the group durable in the journal between :meth:`GroupAdmission.plan_next` and
:meth:`GroupAdmission.mark_opened`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from actors.buffer.group_progress import GroupProgress
from actors.scheduler.admission import (
    AdmissionDecision,
    AdmissionHold,
    GroupTimes,
    MeasuredTimes,
    RolloutFlow,
    RolloutTuning,
    decide_admission,
)
from actors.scheduler.settings import SchedulerRunState, SchedulerSpec
from actors.scheduler.staleness_ledger import StalenessLedger
from actors.scheduler.task_sampler import CanStart, TaskSampler
from protocol.errors import UserError
from protocol.events import EmitEvent, JsonValue
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFullError, ClosedGroup, DiskFullError
from protocol.trajectory import GroupId

_SHOWN_TASKS = 8
"""Number of an epoch's first tasks in its event; seed, epoch and ``closings_seen`` reproduce the whole order."""
_FLOW_HOLDS = {RolloutFlow.PAUSE: AdmissionHold.PAUSED, RolloutFlow.DRAIN: AdmissionHold.DRAINING}


@dataclass(slots=True)
class GroupAdmission:
    """The task sampler, the open groups, and the decision to open another."""

    spec: SchedulerSpec
    emit: EmitEvent
    run_state: SchedulerRunState = field(default_factory=SchedulerRunState)
    hold: AdmissionHold | None = AdmissionHold.NOT_TRAINING
    """Reason that the last :meth:`plan_next` returned no group."""
    blocked_by: BudgetFullError | DiskFullError | None = None
    """The journal's error if it refused the last group."""
    ready_groups: int = 0
    """Number of groups that closed and are not trained yet."""
    task_sampler: TaskSampler = field(init=False)
    staleness: StalenessLedger = field(init=False)
    _planned: GroupPlan | None = None
    """A planned group that may or may not be in the journal."""
    _progress: GroupProgress | None = None
    _opened_at: dict[GroupId, float | None] = field(default_factory=dict[GroupId, "float | None"])
    """Time of each open group's opening; None for groups from before this scheduler started."""
    _to_replace: deque[ClosedGroup] = field(default_factory=deque[ClosedGroup])
    """Groups that fill no step and have no replacement yet."""
    _times: GroupTimes = field(init=False)
    _emitted_hold: AdmissionHold | None = None
    _without_image: set[str] = field(default_factory=set[str])
    """Tasks that are excluded only because no worker can make their images."""

    def __post_init__(self) -> None:
        spec = self.spec
        self.task_sampler = TaskSampler(spec.tasks, spec.seed, spec.order)
        self.staleness = StalenessLedger(spec.admission.groups_per_step)
        self._times = GroupTimes(spec.admission.groups_per_step)

    @property
    def tuning(self) -> RolloutTuning:
        """The current tuning: the one that a person has set, or the one that the run started with."""
        return self.run_state.tuning or self.spec.tuning

    @property
    def measured_times(self) -> MeasuredTimes:
        """The measured times of groups and steps so far."""
        return MeasuredTimes(self._times.mean_s, self.run_state.step_s)

    @property
    def open_groups(self) -> int:
        """Number of groups that are open."""
        return len(self._opened_at)

    @property
    def live_groups(self) -> int:
        """Number of groups ever opened, without those that fill no step."""
        progress = self._progress
        useless = progress.dropped + progress.passed_over if progress else 0
        return self.task_sampler.next_group - useless - self.run_state.dropped_groups

    def restore(self, progress: GroupProgress, closings: Sequence[ClosedGroup]) -> None:
        """Continue from the journal's counts and the groups that closed since the task sampler's state was saved."""
        for closing in closings:
            self.task_sampler.record_closing(closing)
        self._progress, self.ready_groups = progress, progress.ready

    def reopen(self, plan: GroupPlan) -> None:
        """Count as open a group that an earlier scheduler opened."""
        self._opened_at[plan.group] = None
        self.staleness.add_opened(plan.group, self.run_state.served_step)

    def plan_next(self, can_start: CanStart = lambda _: True) -> GroupPlan | None:
        """Return the next group to open, or None if admission forbids it or no task whose turn it is can start, with
        the reason in :attr:`hold`.

        It is the same group until :meth:`mark_opened` or :meth:`mark_refused`, because a caller that was cancelled
        leaves it unknown whether the journal has the group."""
        if self._planned is not None and self.flow_hold() is None:
            return self._planned
        decision = self._decide()
        if decision.hold is not None:
            self.set_hold(decision.hold, max_steps_ahead=round(decision.max_steps_ahead, 3))
            return None
        if (drawn := self._draw_task(can_start)) is None:
            self.set_hold(AdmissionHold.IMAGES, put_off=len(self.task_sampler.put_off))
            return None
        group, task = drawn
        seeds = tuple(
            random.Random(f"{self.spec.seed}/{group}/{sample}").getrandbits(31)
            for sample in range(self.spec.settings.group_size)
        )
        self._planned = GroupPlan(GroupId(group), task, seeds)
        return self._planned

    def mark_opened(self, plan: GroupPlan, now: float) -> None:
        """Record that ``plan`` and the task sampler's state are durable."""
        self._planned = None
        per_step = self.spec.admission.groups_per_step
        step = self.live_groups - 1
        replaced = self._to_replace.popleft() if self._to_replace else None
        reason = f"for step {step // per_step + 1}"
        if replaced is not None:
            reason = f"replaces group {replaced.group}, {replaced.outcome.value}"
        self.emit(
            "group.admitted",
            group=plan.group,
            task=plan.task,
            reason=reason,
            expected_staleness=round(max(0.0, step / per_step - self.run_state.served_step), 3),
        )
        self.blocked_by, self.hold, self._emitted_hold = None, None, None
        self._opened_at[plan.group] = now
        self.staleness.add_opened(plan.group, self.run_state.served_step)

    def mark_refused(self, plan: GroupPlan, error: BudgetFullError | DiskFullError) -> None:
        """Record that the journal refused ``plan``: its task stays the next one."""
        self._planned = None
        self.task_sampler.undo_draw(plan.task)
        if type(self.blocked_by) is not type(error):
            self.emit("admission.blocked", reason=str(error))
        self.blocked_by = error
        self.set_hold(AdmissionHold.DISK if isinstance(error, DiskFullError) else AdmissionHold.BYTES)

    def forget_planned(self) -> None:
        """Forget a group that was planned and not opened, because training has ended."""
        self._planned = None

    def apply_progress(self, progress: GroupProgress, now: float) -> None:
        """Apply which groups closed and how many fill no step."""
        self._progress, self.ready_groups = progress, progress.ready
        for closing in progress.closed:
            if self.task_sampler.record_closing(closing):
                self.emit("task.requeued", task=closing.task, group=closing.group, reason=closing.outcome.value)
            if closing.outcome.drop_reason is not None:
                self._to_replace.append(closing)
            self.staleness.add_closed(closing.group, ready=closing.outcome is GroupOutcome.READY)
            opened_at = self._opened_at.pop(closing.group, None)
            if opened_at is not None:
                self._times.add(now - opened_at)
        self.staleness.forget_trained(self.ready_groups)
        if self.run_state.flow is RolloutFlow.DRAIN and progress.closed and not self._opened_at:
            self.emit("scheduler.drained", ready=self.ready_groups)

    def require_open(self, group: GroupId) -> None:
        """Raise UserError if ``group`` is not open."""
        if group not in self._opened_at:
            oldest = min(self._opened_at, default=None)
            hint = "no group is open now" if oldest is None else f"the oldest open group is {oldest}"
            raise UserError(f"group {group} is not open: it has closed or was not opened yet; {hint}")

    def flow_hold(self) -> AdmissionHold | None:
        """Return the reason for which the run's state alone forbids every group, or None."""
        if not self.run_state.training:
            return AdmissionHold.NOT_TRAINING
        return _FLOW_HOLDS.get(self.run_state.flow)

    def set_hold(self, hold: AdmissionHold | None, **fields: JsonValue) -> None:
        """Record why no group was opened, and emit it if the reason has changed."""
        self.hold = hold
        if hold is not None and hold is not self._emitted_hold:
            self._emitted_hold = hold
            published = self.run_state.served_step
            self.emit("admission.held", reason=hold.value, live=self.live_groups, served_step=published, **fields)

    def _decide(self) -> AdmissionDecision:
        if (hold := self.flow_hold()) is not None:
            return AdmissionDecision(0, hold, 0.0)
        return decide_admission(
            self.spec.admission,
            self.tuning,
            self.measured_times,
            live=self.live_groups,
            served_step=self.run_state.served_step,
            total_steps=self.spec.total_steps,
        )

    def exclude_task(self, task: str, reason: str) -> None:
        """Draw ``task`` no more, because it cannot be used, whatever becomes of its image."""
        self._without_image.discard(task)
        self._exclude(task, reason)

    def exclude_for_images(self, failures: Mapping[str, str], can_start: CanStart) -> None:
        """Exclude the tasks whose images cannot be made, with the reasons, until they can start."""
        for task in filter(can_start, sorted(self._without_image)):
            self._without_image.remove(task)
            self.task_sampler.unusable.remove(task)
            self.emit("task.usable", task=task)
        for task, reason in failures.items():
            if self._exclude(task, reason):
                self._without_image.add(task)

    def _exclude(self, task: str, reason: str) -> bool:
        """Return whether ``task`` was drawn before."""
        if task not in self.task_sampler.tasks or task in self.task_sampler.unusable:
            return False
        self.task_sampler.unusable.add(task)
        self.emit("task.unusable", task=task, reason=reason)
        return True

    def _draw_task(self, can_start: CanStart) -> tuple[int, str] | None:
        """Draw the next group and its task; if an epoch begins with it, emit the epoch's order.  Emit which tasks are
        put off."""
        sampler, epoch, put_off = self.task_sampler, self.task_sampler.epoch, frozenset(self.task_sampler.put_off)
        drawn = sampler.draw_task(can_start)
        for task in sampler.put_off:
            if task not in put_off:
                self.emit("task.put_off", task=task, reason=AdmissionHold.IMAGES.value)
        if sampler.epoch != epoch:
            self.emit(
                "epoch.ordered",
                epoch=sampler.epoch,
                reason=sampler.order.value,
                tasks=len(sampler.tasks),
                tried=sampler.tried_tasks,
                closings_seen=sampler.closings_seen,
                first=list(sampler.epoch_order[:_SHOWN_TASKS]),
            )
        return drawn
