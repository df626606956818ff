"""If these fail, rollout runs too far ahead or starves the learner, or a person's word to a running run is not kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.buffer.group_progress import GroupProgress
from actors.scheduler.admission import (
    AdmissionHold,
    GroupTimes,
    MeasuredTimes,
    RolloutFlow,
    allowed_steps_ahead,
    decide_admission,
)
from actors.scheduler.core import SchedulerCore
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.settings import FailedRequestOutcome, SchedulerRunState, SchedulerSettings, SchedulerSpec
from actors.scheduler.staleness_ledger import StalenessLedger
from protocol.errors import UserError
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFullError, ClosedGroup, JournalOpenGroup
from protocol.staleness import AdmissionLimit, AdmissionMode, find_oldest_running_step
from protocol.trajectory import GroupId, InfraFailure, RolloutRequest

PER_STEP, SIZE, MAX_STALENESS, STEPS = 2, 2, 4, 100
TRAINING = SchedulerRunState(training=True)
TUNING = SchedulerSettings().tuning(publish_every=1)


class CoreWithJournal:
    """A scheduler core, what it emitted, and the closings that a journal would tell it of."""

    def __init__(
        self,
        *,
        in_flight: int = 0,
        mode: AdmissionMode = AdmissionMode.ASYNC,
        order: TaskOrder = TaskOrder.LISTED,
        replacements: int = 1,
    ) -> None:
        settings = SchedulerSpec(
            run_id="run",
            run_dir=Path(),
            node="node-0",
            tasks=("a", "b", "c", "d", "e"),
            settings=SchedulerSettings(groups_per_step=PER_STEP, group_size=SIZE, replacement_limit=replacements),
            admission=AdmissionLimit(mode, PER_STEP, MAX_STALENESS),
            total_steps=STEPS,
            request_deadline_s=100.0,
            seed=0,
            tuning=SchedulerSettings(in_flight=in_flight).tuning(publish_every=1),
            order=order,
        )
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.core = SchedulerCore(settings, lambda kind, **fields: self.events.append((kind, fields)))
        self.closed: list[ClosedGroup] = []

    def open(self, free: int = 1000, now: float = 0.0) -> list[GroupPlan]:
        plans: list[GroupPlan] = []
        while (plan := self.core.plan_group(free)) is not None:
            self.core.mark_opened(plan, now)
            plans.append(plan)
        return plans

    def close(self, plan: GroupPlan, outcome: GroupOutcome = GroupOutcome.READY, now: float = 0.0) -> None:
        closing = ClosedGroup(len(self.closed) + 1, plan.group, plan.task, outcome, SIZE, {0: 0.0, 1: 1.0})
        self.closed.append(closing)
        counts = Counter(each.outcome for each in self.closed)
        dropped = sum(count for outcome, count in counts.items() if outcome is not GroupOutcome.READY)
        self.core.apply_progress(GroupProgress(closing.seq, (closing,), dropped, 0, counts[GroupOutcome.READY]), now)

    def lose(self, request: RolloutRequest, now: float = 0.0) -> FailedRequestOutcome:
        """Infrastructure fails a request that is out."""
        out = self.core.requests.finish(request)
        assert out is not None
        return self.core.handle_failure(out, InfraFailure.ENGINE, "gone", now)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def last(self, kind: str) -> dict[str, Any]:
        return [fields for each, fields in self.events if each == kind][-1]


# -- how many ----------------------------------------------------------------------------------------------------


@given(
    max_staleness=st.integers(1, 8),
    publish=st.integers(1, 4),
    group_s=st.floats(0.1, 1e4),
    step_s=st.floats(0.1, 1e4),
    slack=st.floats(0, 3),
)
def test_the_lead_stays_between_one_publication_and_the_staleness_bound_at_any_pace(
    max_staleness: int, publish: int, group_s: float, step_s: float, slack: float
) -> None:
    publish = min(publish, max_staleness)
    steps_ahead = allowed_steps_ahead(
        AdmissionLimit(AdmissionMode.ASYNC, PER_STEP, max_staleness),
        SchedulerSettings(slack=slack).tuning(publish_every=publish),
        MeasuredTimes(group_s, step_s),
    )
    assert publish - 1 <= steps_ahead <= max_staleness


def test_no_groups_open_while_the_learner_has_enough() -> None:
    """Groups that take half a step need half a step's worth under way and one ready; η alone would let four wait."""
    admission = AdmissionLimit(AdmissionMode.ASYNC, 4, 4)
    decision = decide_admission(admission, TUNING, MeasuredTimes(5.0, 10.0), live=10, served_step=0, total_steps=STEPS)
    assert (decision.groups, decision.hold, decision.max_steps_ahead) == (0, AdmissionHold.EXPECTED_STALENESS, 1.5)
    unknown = decide_admission(admission, TUNING, MeasuredTimes(), live=10, served_step=0, total_steps=STEPS)
    assert (unknown.groups, unknown.max_steps_ahead) == (10, 4)


@pytest.mark.parametrize("mode", [AdmissionMode.SYNC, AdmissionMode.ONE_STEP_OFF])
def test_sync_and_one_step_off_have_a_fixed_lead_at_any_pace(mode: AdmissionMode) -> None:
    admission = AdmissionLimit(mode, PER_STEP, MAX_STALENESS)
    assert allowed_steps_ahead(admission, TUNING, MeasuredTimes(1.0, 100.0)) == admission.max_steps_ahead


def test_the_mean_group_time_is_unknown_until_enough_groups_have_closed() -> None:
    times = GroupTimes(groups_per_step=4)
    for _ in range(7):
        times.add(1.0)
    assert times.mean_s is None
    times.add(9.0)
    assert times.mean_s == 2.0


def test_every_group_opening_records_its_reason() -> None:
    scheduler = CoreWithJournal(mode=AdmissionMode.SYNC)
    scheduler.core.set_run_state(TRAINING)
    first, second = scheduler.open()
    assert scheduler.last("group.admitted")["reason"] == "for step 1"
    assert scheduler.last("admission.held")["reason"] == AdmissionHold.STALENESS
    scheduler.close(first, GroupOutcome.ZERO_VARIANCE)
    (third,) = scheduler.open()
    assert scheduler.last("group.admitted")["reason"] == "replaces group 0, zero_variance"
    scheduler.close(third, GroupOutcome.TOO_FEW_MEMBERS)
    assert scheduler.last("task.requeued")["task"] == third.task
    (fourth,) = scheduler.open()
    assert fourth.task == third.task
    assert second.group == 1


def test_every_epochs_order_is_recorded_once_with_its_inputs() -> None:
    scheduler = CoreWithJournal(mode=AdmissionMode.SYNC, order=TaskOrder.FRONTIER)
    for step in range(3):
        scheduler.core.set_run_state(replace(TRAINING, served_step=step))
        for plan in scheduler.open():
            scheduler.close(plan)
    first, second = [fields for kind, fields in scheduler.events if kind == "epoch.ordered"]
    assert [each["epoch"] for each in (first, second)] == [0, 1]
    assert (first["tried"], second["tried"], second["closings_seen"]) == (0, 4, 4), (
        "the fifth task's group is open still"
    )
    assert second["reason"] == "frontier"
    assert sorted(second["first"]) == ["a", "b", "c", "d", "e"]


def test_a_group_refused_by_the_journal_is_planned_again() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    plan = scheduler.core.plan_group(1)
    assert plan is not None
    scheduler.core.mark_refused(plan, BudgetFullError("no room"))
    assert (scheduler.core.groups.hold, str(scheduler.core.groups.blocked_by)) == (
        AdmissionHold.BYTES,
        "no room",
    )
    assert scheduler.core.plan_group(1) == plan


def test_a_dropped_group_is_replaced() -> None:
    scheduler = CoreWithJournal(mode=AdmissionMode.SYNC)
    scheduler.core.set_run_state(TRAINING)
    assert len(scheduler.open()) == PER_STEP
    scheduler.core.set_run_state(replace(TRAINING, dropped_groups=1))
    assert len(scheduler.open()) == 1


# -- before and after training ---------------------------------------------------------------------------------------


def test_a_group_opened_after_the_end_of_training_starts_no_episode() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    plan = scheduler.core.plan_group(1)
    assert plan is not None
    scheduler.core.set_run_state(SchedulerRunState())
    scheduler.core.mark_opened(plan, 0.0)
    assert scheduler.core.assign_requests("w#1", 10, 0.0) == []


def test_requests_of_an_earlier_scheduler_wait_for_the_training() -> None:
    """Otherwise a scheduler that restarts at the end runs training episodes beside the evaluation."""
    scheduler, plan = CoreWithJournal(), GroupPlan(GroupId(0), "a", (1, 2))
    scheduler.core.reopen_groups([JournalOpenGroup(plan, (0, 1))])
    assert scheduler.core.assign_requests("w#1", 10, 0.0) == []
    scheduler.core.set_run_state(TRAINING)
    scheduler.core.set_run_state(replace(TRAINING, served_step=1))
    assert scheduler.core.assign_requests("w#1", 10, 0.0) == [
        plan.rollout_request("run", 0),
        plan.rollout_request("run", 1),
    ]


# -- a person's word ------------------------------------------------------------------------------------------------


def test_a_paused_run_assigns_no_requests_and_resumes_where_it_was() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    scheduler.open(free=SIZE)
    scheduler.core.set_run_state(replace(TRAINING, flow=RolloutFlow.PAUSE))
    assert scheduler.core.assign_requests("w#1", 10, 0.0) == []
    assert scheduler.open() == []
    assert scheduler.core.groups.hold is AdmissionHold.PAUSED
    scheduler.core.set_run_state(TRAINING)
    assert [request.sample for request in scheduler.core.assign_requests("w#1", SIZE, 0.0)] == [0, 1]
    assert scheduler.kinds().count("scheduler.flow") == 2


def test_a_draining_run_finishes_its_groups_and_says_when() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    (plan,) = scheduler.open(free=1)
    scheduler.core.set_run_state(replace(TRAINING, flow=RolloutFlow.DRAIN))
    assert len(scheduler.core.assign_requests("w#1", 10, 0.0)) == SIZE
    assert scheduler.open() == []
    assert scheduler.core.groups.hold is AdmissionHold.DRAINING
    scheduler.close(plan)
    assert scheduler.last("scheduler.drained") == {"ready": 1}


def test_the_limit_of_requests_in_flight_can_be_changed_during_a_run() -> None:
    scheduler = CoreWithJournal(in_flight=3)
    scheduler.core.set_run_state(TRAINING)
    scheduler.open(free=10)
    assert len(scheduler.core.assign_requests("w#1", 10, 0.0)) == 3
    scheduler.open(free=10)
    assert scheduler.core.groups.hold is AdmissionHold.IN_FLIGHT
    scheduler.core.set_run_state(replace(TRAINING, tuning=replace(TUNING, in_flight=5)))
    scheduler.open(free=10)
    assert len(scheduler.core.assign_requests("w#1", 10, 0.0)) == 2
    assert scheduler.last("scheduler.retuned")["in_flight"] == 5


def test_tuning_cannot_exceed_the_staleness_bound() -> None:
    admission = AdmissionLimit(AdmissionMode.ASYNC, PER_STEP, MAX_STALENESS)
    assert allowed_steps_ahead(admission, replace(TUNING, max_steps_ahead=50.0), MeasuredTimes()) == MAX_STALENESS
    assert allowed_steps_ahead(admission, replace(TUNING, max_steps_ahead=1.5), MeasuredTimes()) == 1.5
    with pytest.raises(ValueError, match="negative"):
        replace(TUNING, in_flight=-1)


def test_cancelled_samples_are_not_requested_again() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    plan, other = scheduler.open(free=2 * SIZE)[:2]
    (out,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    with pytest.raises(UserError, match="group 99 is not open"):
        scheduler.core.groups.require_open(GroupId(99))
    scheduler.core.groups.require_open(plan.group)
    assert scheduler.core.cancel_samples(plan.group, out.sample) == (out.sample,)
    assert scheduler.core.cancel_samples(plan.group, out.sample) == ()
    assert len(scheduler.core.cancel_samples(plan.group, None)) == SIZE - 1
    remaining = {request.group for request in scheduler.core.assign_requests("w#1", 1000, 0.0)}
    assert plan.group not in remaining
    assert other.group in remaining
    assert scheduler.kinds().count("rollout_request.cancelled") == SIZE


# -- what is lost ---------------------------------------------------------------------------------------------------


def test_each_lost_request_is_issued_again_until_its_limit() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    scheduler.open(free=1)
    (request,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    assert scheduler.lose(request) is FailedRequestOutcome.REISSUED
    (again,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    assert (again.attempt, scheduler.last("rollout_request.reissued")["reason"]) == (1, "engine")
    assert scheduler.lose(again) is FailedRequestOutcome.ABANDONED
    assert scheduler.last("sample.abandoned")["attempts"] == 2


def test_every_request_is_assigned_and_replaced_a_limited_number_of_times() -> None:
    """Otherwise its group would never close: lost requests go first, but only a limited number of times."""
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    scheduler.open()
    waiting = len(scheduler.core.requests.waiting)
    handed_out = 0
    while requests := scheduler.core.assign_requests("w#1", 1, 0.0):
        handed_out += 1
        scheduler.lose(*requests)
    assert handed_out == waiting * (1 + scheduler.core.spec.settings.replacement_limit)
    assert scheduler.kinds().count("sample.abandoned") == waiting


def test_failure_rates_by_attempt_duration_are_reported_at_the_end_of_training() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    scheduler.open()
    for seconds, request in enumerate(scheduler.core.assign_requests("w#1", 10, 100.0), start=1):
        if seconds == 10:
            scheduler.lose(request, 100.0 + seconds)
        else:
            scheduler.core.mark_arrived(request, 100.0 + seconds)
    scheduler.core.set_run_state(SchedulerRunState())
    assert scheduler.last("infra.failure_rates") == {"attempts": 10, "failed": 1, "by_decile": [0.0] * 9 + [1.0]}
    assert scheduler.last("alert.raised")["name"] == "infra_rates"


def test_a_reissued_request_is_withdrawn_when_its_sample_arrives() -> None:
    """Its first attempt was out too long, and came in before anybody took the second."""
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    scheduler.open(free=1)
    (late,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    scheduler.lose(late)
    assert not scheduler.core.mark_arrived(late, 0.0)
    assert [request.sample for request in scheduler.core.assign_requests("w#1", SIZE, 0.0)] == [1]
    assert scheduler.last("rollout_request.withdrawn") == {
        "trajectory": late.trajectory_id,
        "attempt": 1,
        "reason": "arrived",
    }


def test_a_second_attempt_that_fails_after_the_first_has_arrived_is_not_replaced() -> None:
    scheduler = CoreWithJournal(replacements=3)
    scheduler.core.set_run_state(TRAINING)
    scheduler.open(free=1)
    (late,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    scheduler.lose(late)
    (again,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    scheduler.core.mark_arrived(late, 0.0)
    assert scheduler.lose(again) is FailedRequestOutcome.SETTLED
    assert again.sample not in [request.sample for request in scheduler.core.requests.waiting]


def test_a_failed_request_of_a_closed_group_is_not_reissued() -> None:
    """The journal's word came before its worker's."""
    scheduler = CoreWithJournal(replacements=3)
    scheduler.core.set_run_state(TRAINING)
    plan, *_ = scheduler.open(free=1)
    (running,) = scheduler.core.assign_requests("w#1", 1, 0.0)
    scheduler.close(plan)
    assert scheduler.lose(running) is FailedRequestOutcome.SETTLED
    assert not [request for request in scheduler.core.requests.waiting if request.group == plan.group]
    assert scheduler.last("rollout_request.withdrawn")["reason"] == "group_closed"


def test_episodes_that_finish_during_a_scheduler_restart_are_not_repeated() -> None:
    scheduler, plan = CoreWithJournal(), GroupPlan(GroupId(0), "a", (1, 2))
    scheduler.core.reopen_groups([JournalOpenGroup(plan, (0, 1))])
    scheduler.core.mark_arrived(plan.rollout_request("run", 0), 0.0)
    scheduler.core.set_run_state(TRAINING)
    scheduler.core.mark_arrived(plan.rollout_request("run", 1), 0.0)
    assert scheduler.core.assign_requests("w#1", 10, 0.0) == []


def test_requests_dropped_at_the_end_of_training_are_reported() -> None:
    scheduler = CoreWithJournal()
    scheduler.core.set_run_state(TRAINING)
    scheduler.open(free=1)
    scheduler.core.assign_requests("w#1", 1, 0.0)
    scheduler.core.set_run_state(SchedulerRunState())
    assert scheduler.last("rollout_request.dropped") == {"requests": SIZE, "reason": "training_over"}


def test_ready_groups_older_than_the_trained_ones_are_forgotten() -> None:
    """Only under the policy ``wait`` does a step say which groups it takes: otherwise weeks of them would pile up."""
    ledger = StalenessLedger(groups_per_step=1)
    for group in range(20):
        ledger.add_opened(GroupId(group), served_step=group)
    for group in range(10):
        ledger.add_closed(GroupId(group), ready=True)
        ledger.forget_trained(min(group + 1, 3))
    running, waiting = [*range(10, 20)], [7, 8, 9]
    assert ledger.oldest_running_step(0, []) == find_oldest_running_step(running, waiting, 1)
    assert find_oldest_running_step(running, waiting, 1) != find_oldest_running_step(running, [*range(10)], 1)


# -- the policy wait ------------------------------------------------------------------------------------------------


@given(
    groups_per_step=st.integers(1, 4),
    running=st.lists(st.integers(0, 9), max_size=8),
    ready=st.lists(st.integers(0, 9), max_size=8),
)
def test_a_step_is_bound_by_the_group_that_has_least_time_left(
    groups_per_step: int, running: list[int], ready: list[int]
) -> None:
    bound = find_oldest_running_step(running, ready, groups_per_step)
    if not running:
        assert bound is None
        return
    assert bound is not None
    assert bound <= min(running), "the oldest that runs is trained in the next batch at the earliest"
    assert bound >= min(running) - (len(running) + len(ready)) // groups_per_step
