"""If these fail, a step trains less than it could, or leases more than admission opens: its run waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from launch.training.batch_fill import BatchFill


def test_places_lost_to_staleness_are_leased_again_in_the_next_step() -> None:
    fill = BatchFill(groups_per_step=16, group_size=8)
    assert fill.groups_to_lease == 16
    fill.record_step(dropped=20)
    assert (fill.groups_to_lease, fill.dropped_groups) == (18, 2)
    fill.record_step(dropped=4)
    assert (fill.groups_to_lease, fill.dropped_groups) == (17, 3), "what was left over of the step before counts"
    fill.record_step(dropped=0)
    assert (fill.groups_to_lease, fill.dropped_groups) == (16, 3)


def test_losses_beyond_one_batch_are_leased_over_several_steps() -> None:
    """Without this, steps that lose nearly all of their batch lease more and more, until it exceeds every budget."""
    fill = BatchFill(groups_per_step=2, group_size=2)
    leased: list[int] = []
    for lost in (8, 0, 0, 0):
        fill.record_step(lost)
        leased.append(fill.groups_to_lease)
    assert leased == [4, 4, 2, 2]


def test_a_resumed_run_keeps_its_count_of_dropped_groups_and_owes_no_lease() -> None:
    fill = BatchFill(16, 8, dropped=20)
    assert (fill.groups_to_lease, fill.dropped_groups) == (16, 2)


@given(st.lists(st.tuples(st.integers(0, 16), st.booleans()), max_size=30))
def test_steps_never_lease_more_than_admission_opens_for_them(history: list[tuple[int, bool]]) -> None:
    """``history``: what each step lost, and whether the learner died after it and was resumed from there."""
    fill, leased = BatchFill(4, 4), 0
    for step, (lost, resumed) in enumerate(history):
        leased += fill.groups_to_lease
        assert leased <= (step + 1) * 4 + fill.dropped_groups
        fill.record_step(lost)
        if resumed:
            fill = BatchFill(4, 4, fill.dropped)
