"""If these fail, a step trains less than it could, or admission starves a run that has lost places in its batches."""

from __future__ import annotations

from launch.batch_fill import BatchFill


def test_places_lost_to_age_are_leased_again_in_the_next_steps() -> None:
    fill = BatchFill(groups_per_step=16, group_size=8)
    assert fill.groups == 16
    fill.stepped(lost=20)
    assert (fill.groups, fill.lost_groups) == (18, 2)
    for _ in range(40):
        fill.stepped(lost=0)
    assert (fill.groups, fill.lost_groups) == (16, 2)
    assert BatchFill(16, 8, lost=fill.lost).lost_groups == 2, "a resumed run tells admission the same"
