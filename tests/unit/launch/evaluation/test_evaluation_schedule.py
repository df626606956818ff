"""If these fail, an evaluation beside training is forgotten, made twice, or begins beside another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from launch.evaluation.held_out.schedule import EvaluationSchedule, ScheduleDecision

EVERY, LAST = 3, 40


@pytest.mark.parametrize(
    ("step", "verdict"),
    [(0, "not_due"), (1, "not_due"), (3, "begin"), (4, "not_due"), (39, "begin"), (LAST, "not_due")],
)
def test_evaluations_are_due_at_their_interval_but_not_at_the_last_step(step: int, verdict: str) -> None:
    assert EvaluationSchedule(EVERY, LAST).on_published(step) == verdict
    assert EvaluationSchedule(0, LAST).on_published(step) == ScheduleDecision.NOT_DUE
    assert EvaluationSchedule(EVERY, 12).on_published(12) == ScheduleDecision.NOT_DUE


def test_an_evaluation_can_be_requested_for_any_step_but_only_once() -> None:
    schedule = EvaluationSchedule(EVERY, LAST)
    assert schedule.request(4) is ScheduleDecision.BEGIN
    assert schedule.request(4) is ScheduleDecision.NOT_DUE
    assert schedule.request(5) is ScheduleDecision.OVERLAPS
    schedule.finish(complete=True)
    assert schedule.request(4) is ScheduleDecision.NOT_DUE
    assert schedule.request(5) is ScheduleDecision.BEGIN


@given(step=st.integers(1, LAST), to=st.integers(0, LAST))
def test_a_running_evaluation_ends_only_if_a_rollback_removes_its_weights(step: int, to: int) -> None:
    schedule = EvaluationSchedule(1, LAST + 1)
    assert schedule.on_published(step) is ScheduleDecision.BEGIN
    assert schedule.roll_back(to) is (to < step)
    assert (schedule.running_step is None) is (to < step)


class ScheduleMachine(RuleBasedStateMachine):
    """A run: it trains, evaluates, dies, is rolled back to some checkpoint and goes on, the driver anew or not.  What
    the disk knows is what was done of the weights that stand, and what is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = EvaluationSchedule(EVERY, LAST)
        self.step = 0
        self.done: set[int] = set()
        """Steps whose evaluation is done and whose weights are kept."""
        self.begun: dict[int, int] = {}
        """Times that an evaluation of weights that stand was begun, less those that failed."""
        self.missed: set[int] = set()
        """Due, and said to be passed over."""

    def publish(self) -> None:
        before = self.schedule.running_step
        verdict = self.schedule.on_published(self.step)
        due = 0 < self.step < LAST and self.step % EVERY == 0
        if verdict is ScheduleDecision.BEGIN:
            assert due
            assert before is None, "two at once"
            self.begun[self.step] = self.begun.get(self.step, 0) + 1
            self.missed.discard(self.step)
        elif verdict is ScheduleDecision.OVERLAPS:
            assert due
            assert before is not None
            self.missed.add(self.step)
        else:
            assert not due or self.step in self.begun, "one that is due was forgotten"

    @precondition(lambda self: self.step < LAST)
    @rule()
    def train(self) -> None:
        self.step += 1
        self.publish()

    @precondition(lambda self: self.schedule.running_step is not None)
    @rule(complete=st.booleans())
    def end(self, complete: bool) -> None:
        step = self.schedule.running_step
        assert step is not None
        self.schedule.finish(complete=complete)
        if complete:
            self.done.add(step)
        else:
            self.begun.pop(step)

    @rule(data=st.data())
    def learner_dies(self, data: st.DataObject) -> None:
        self.roll_back(data.draw(st.integers(0, self.step)))
        under_way = self.schedule.running_step
        assert self.schedule.roll_back(self.step) is (under_way is not None and under_way > self.step)
        self.publish()

    @rule(data=st.data())
    def driver_dies(self, data: st.DataObject) -> None:
        under_way = self.schedule.running_step
        self.roll_back(data.draw(st.integers(0, self.step)))
        self.schedule = EvaluationSchedule(EVERY, LAST, evaluated_steps=set(self.done))
        if under_way is not None and under_way <= self.step:
            self.schedule.begin(under_way)
        self.publish()

    @rule()
    def person_asks(self) -> None:
        if self.schedule.request(self.step) is ScheduleDecision.BEGIN:
            self.begun[self.step] = self.begun.get(self.step, 0) + 1
            self.missed.discard(self.step)

    def roll_back(self, step: int) -> None:
        self.step = step
        self.done = {each for each in self.done if each <= step}
        self.begun = {each: times for each, times in self.begun.items() if each <= step}
        self.missed = {each for each in self.missed if each <= step}

    @invariant()
    def none_is_made_twice(self) -> None:
        assert set(self.begun.values()) <= {1}

    @invariant()
    def every_one_that_was_begun_is_done_or_under_way(self) -> None:
        under_way = set() if self.schedule.running_step is None else {self.schedule.running_step}
        assert set(self.begun) == self.done | under_way
        assert self.schedule.evaluated_steps == self.done | under_way


TestSchedule = ScheduleMachine.TestCase
