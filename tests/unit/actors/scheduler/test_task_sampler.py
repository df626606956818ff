"""If these fail, a resumed run skips tasks or trains some twice as often as others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.buffer.task_records import TaskRecord, record_outcome
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.task_sampler import TaskSampler, closings_seen_by
from protocol.errors import UserError
from protocol.groups import GroupOutcome
from protocol.journal import ClosedGroup
from protocol.trajectory import GroupId

TASKS = ("a", "b", "c", "d", "e")


def draw(sampler: TaskSampler, startable: Collection[str] = TASKS) -> tuple[int, str]:
    drawn = sampler.draw_task(startable.__contains__)
    assert drawn is not None
    return drawn


def take(sampler: TaskSampler, count: int, startable: Collection[str] = TASKS) -> list[str]:
    return [draw(sampler, startable)[1] for _ in range(count)]


def closing(seq: int, task: str, outcome: GroupOutcome = GroupOutcome.READY, share: float = 0.0) -> ClosedGroup:
    """``share`` of its episodes passed; their rewards are on OpenClaw's scale."""
    passed = frozenset(range(round(20 * share)))
    rewards = {sample: 1.0 if sample in passed else -1.0 for sample in range(20)}
    return ClosedGroup(seq, GroupId(seq - 1), task, outcome, 20, rewards, passed)


def records(closings: list[ClosedGroup]) -> dict[str, TaskRecord]:
    found: dict[str, TaskRecord] = {}
    for each in closings:
        record_outcome(found, each)
    return found


@given(order=st.sampled_from(TaskOrder), seed=st.integers(0, 50), cut=st.integers(0, 23), data=st.data())
def test_a_restored_sampler_draws_the_same_tasks_as_an_uninterrupted_one(
    order: TaskOrder, seed: int, cut: int, data: st.DataObject
) -> None:
    """Whatever the order, whatever closed before or after the state was saved."""
    outcomes = st.sampled_from([GroupOutcome.READY, GroupOutcome.ZERO_VARIANCE, GroupOutcome.TOO_FEW_MEMBERS])
    closings: list[ClosedGroup] = []

    def run(sampler: TaskSampler, groups: range) -> list[str]:
        """Take a task, hear of what closed meanwhile, and so on."""
        found = []
        for group in groups:
            found.append(draw(sampler)[1])
            if group not in known:
                closed = data.draw(outcomes), data.draw(st.sampled_from((0.0, 0.5, 1.0)))
                known[group] = [closing(group + 1, found[-1], *closed)]
            for each in known[group]:
                sampler.record_closing(each)
                closings.append(each)
        return found

    known: dict[int, list[ClosedGroup]] = {}
    whole = run(TaskSampler(TASKS, seed, order), range(23))
    closings.clear()
    first = TaskSampler(TASKS, seed, order)
    begun, state = [], None
    for group in range(cut):
        begun.append(draw(first)[1])
        state = first.state()  # durable with the group that it names, before that group's end is known
        for each in known[group]:
            first.record_closing(each)
            closings.append(each)
    second = TaskSampler(TASKS, seed, order)
    at_epoch, at_state = closings_seen_by(state)
    second.restore(state, records(closings[:at_epoch]), records(closings[:at_state]))
    for each in closings:
        second.record_closing(each)
    assert begun + run(second, range(cut, 23)) == whole


@given(order=st.sampled_from(TaskOrder), seed=st.integers(0, 50))
def test_every_epoch_has_every_task_once(order: TaskOrder, seed: int) -> None:
    taken = take(TaskSampler(TASKS, seed, order), 3 * len(TASKS))
    for epoch in range(3):
        assert Counter(taken[epoch * 5 : epoch * 5 + 5]) == Counter(TASKS)


def test_the_listed_order_keeps_families_in_rotation() -> None:
    taken = take(TaskSampler(TASKS, 3, TaskOrder.LISTED), 10)
    assert taken[:5] == list(TASKS)
    start = TASKS.index(taken[5])
    assert taken[5:] == [*TASKS[start:], *TASKS[:start]]


def test_frontier_order_puts_partly_solved_tasks_first() -> None:
    """Tasks that the policy always or never solves teach it nothing, and come last."""
    sampler = TaskSampler(TASKS, 0, TaskOrder.FRONTIER)
    shares = {"a": 1.0, "b": 0.25, "c": 0.5, "d": 0.0, "e": 0.6}
    for seq, task in enumerate(take(sampler, len(TASKS)), start=1):
        sampler.record_closing(closing(seq, task, share=shares[task]))
    assert take(sampler, len(TASKS))[:3] == ["c", "e", "b"]


def test_a_task_with_only_lost_episodes_is_ordered_like_an_untried_one() -> None:
    """Otherwise the next epoch's order would divide by zero episodes, and the scheduler would end."""
    sampler = TaskSampler(TASKS, 0, TaskOrder.FRONTIER)
    for seq, task in enumerate(take(sampler, len(TASKS)), start=1):
        sampler.record_closing(ClosedGroup(seq, GroupId(seq - 1), task, GroupOutcome.TOO_FEW_MEMBERS, 2, {}))
    assert set(take(sampler, 2 * len(TASKS))) == set(TASKS)


def test_group_ids_are_never_used_twice() -> None:
    sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED)
    assert [draw(sampler)[0] for _ in range(12)] == list(range(12))


def test_a_task_of_a_wasted_group_is_drawn_next_and_only_once_more() -> None:
    sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED)
    first = draw(sampler)[1]
    assert sampler.record_closing(closing(1, first, GroupOutcome.TOO_FEW_MEMBERS))
    assert not sampler.record_closing(closing(1, first, GroupOutcome.TOO_FEW_MEMBERS)), "heard twice, wasted once"
    assert draw(sampler)[1] == first
    assert not sampler.record_closing(closing(2, first, GroupOutcome.TOO_FEW_MEMBERS))
    assert draw(sampler)[1] != first


@pytest.mark.parametrize("returned", [0, 1, 2])
def test_a_task_of_an_unopened_group_is_drawn_next(returned: int) -> None:
    """And what was to come after it does, whether it comes again for a group that was wasted or not."""
    first, sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED), TaskSampler(TASKS, 0, TaskOrder.LISTED)
    for each in (first, sampler):
        for seq, task in enumerate(take(each, returned), start=1):
            each.record_closing(closing(seq, task, GroupOutcome.TOO_FEW_MEMBERS))
    group, task = draw(sampler)
    sampler.undo_draw(task)
    assert draw(sampler) == (group, task) == draw(first)
    assert take(sampler, 4) == take(first, 4)


def test_a_resume_with_different_tasks_is_refused() -> None:
    sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED)
    draw(sampler)
    with pytest.raises(UserError, match="differ from those that it began with"):
        TaskSampler(TASKS[::-1], 0, TaskOrder.LISTED).restore(sampler.state(), {}, {})


# -- tasks that cannot start yet ---------------------------------------------------------------------------------------


def test_a_task_that_cannot_start_is_put_off_and_drawn_as_soon_as_it_can() -> None:
    sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED)
    assert take(sampler, 2, "bd") == ["b", "d"]
    assert sampler.put_off == ["a", "c"]
    assert take(sampler, 3, "abcde") == ["a", "c", "e"]
    assert not sampler.put_off


def test_no_epoch_begins_while_half_of_the_tasks_are_put_off() -> None:
    """Otherwise the first image that is ready fills whole steps with groups of one task."""
    sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED)
    assert take(sampler, 2, "ab") == ["a", "b"]
    assert [sampler.draw_task("ab".__contains__) for _ in range(3)] == [None] * 3
    assert (sampler.put_off, sampler.epoch) == (["c", "d", "e"], 0)
    assert Counter(take(sampler, 4, "abc")) == Counter("cabc"), "two of five are put off: the next epoch begins"
    assert sampler.put_off == ["d", "e"]
    assert Counter(take(sampler, 2)) == Counter("de"), "once each, although two of their turns have passed"


def test_upcoming_tasks_are_in_the_order_in_which_they_will_be_drawn() -> None:
    sampler = TaskSampler(TASKS, 0, TaskOrder.SHUFFLED)
    order = list(sampler.upcoming_tasks())
    assert take(sampler, 5) == order
    fresh = TaskSampler(TASKS, 0, TaskOrder.SHUFFLED)
    draw(fresh, order[1])
    assert list(fresh.upcoming_tasks()) == [order[0], *order[2:], order[1]]


def test_an_unusable_task_is_left_out_even_if_it_was_put_off() -> None:
    sampler = TaskSampler(TASKS, 0, TaskOrder.LISTED)
    take(sampler, 1, "b")
    sampler.unusable |= {"a", "d"}
    assert Counter(take(sampler, 5)) == Counter("bccee")
    sampler.unusable |= set(TASKS)
    assert sampler.draw_task() is None


@given(
    seed=st.integers(0, 20),
    order=st.sampled_from(TaskOrder),
    startable=st.lists(st.frozensets(st.sampled_from(TASKS)), min_size=1, max_size=30),
    cut=st.integers(0, 30),
)
def test_a_restored_sampler_puts_off_and_draws_the_same_tasks(
    seed: int, order: TaskOrder, startable: list[frozenset[str]], cut: int
) -> None:
    whole, first = TaskSampler(TASKS, seed, order), TaskSampler(TASKS, seed, order)
    drawn = [whole.draw_task(each.__contains__) for each in startable]
    for each in startable[:cut]:
        first.draw_task(each.__contains__)
    second = TaskSampler(TASKS, seed, order)
    second.restore(first.state(), {}, {})
    assert [second.draw_task(each.__contains__) for each in startable[cut:]] == drawn[cut:]


@given(seed=st.integers(0, 20), startable=st.lists(st.frozensets(st.sampled_from(TASKS)), max_size=30))
def test_an_undone_draw_is_drawn_again_wherever_it_came_from(seed: int, startable: list[frozenset[str]]) -> None:
    sampler = TaskSampler(TASKS, seed, TaskOrder.SHUFFLED)
    for each in startable:
        if (drawn := sampler.draw_task(each.__contains__)) is not None:
            sampler.undo_draw(drawn[1])
            assert sampler.draw_task(each.__contains__) == drawn
            assert drawn[1] in each
    assert len(set(sampler.put_off)) == len(sampler.put_off)
