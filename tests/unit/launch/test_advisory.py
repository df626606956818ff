"""If these fail, a run that can never make a batch says nothing, or talks all the time."""

from __future__ import annotations

from launch.advisory import ZeroVarianceWatch
from protocol.groups import GroupOutcome
from protocol.journal import GroupClosed
from protocol.trajectory import GroupId


def closings(*outcomes: GroupOutcome, reward: float = 0.0) -> list[GroupClosed]:
    return [
        GroupClosed(seq, GroupId(seq), "task", outcome, 2, {0: reward, 1: reward})
        for seq, outcome in enumerate(outcomes, 1)
    ]


def test_groups_without_a_difference_call_for_a_word_at_once_the_limit_is_reached_then_ever_more_rarely() -> None:
    watch = ZeroVarianceWatch(limit=2)
    said = [watch.take(each) for each in closings(*[GroupOutcome.ZERO_VARIANCE] * 9, reward=1.0)]
    assert [index + 1 for index, advice in enumerate(said) if advice] == [2, 4, 8]
    assert "8 groups" in (said[7] or "")
    assert "mean 1.00" in (said[7] or "")
    assert "rollout.group_size" in (said[7] or "")


def test_a_group_with_a_difference_begins_the_count_anew() -> None:
    alike, ready = GroupOutcome.ZERO_VARIANCE, GroupOutcome.READY
    watch = ZeroVarianceWatch(limit=2)
    assert not any(watch.take(each) for each in closings(alike, ready, alike, ready, alike))
