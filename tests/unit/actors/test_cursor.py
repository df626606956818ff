"""If these fail, a resumed run skips tasks or trains some twice as often as others."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.cursor import TaskCursor

TASKS = ("a", "b", "c", "d", "e")


def take(cursor: TaskCursor, count: int) -> list[str]:
    return [cursor.take()[1] for _ in range(count)]


@given(seed=st.integers(0, 50), cut=st.integers(0, 23))
def test_a_resumed_cursor_goes_on_as_if_nothing_had_happened(seed: int, cut: int) -> None:
    whole = take(TaskCursor(TASKS, seed), 23)
    first = TaskCursor(TASKS, seed)
    begun = take(first, cut)
    second = TaskCursor(TASKS, seed)
    second.restore(first.state())
    assert begun + take(second, 23 - cut) == whole


@given(seed=st.integers(0, 50))
def test_every_epoch_has_every_task_once(seed: int) -> None:
    taken = take(TaskCursor(TASKS, seed), 3 * len(TASKS))
    for epoch in range(3):
        assert Counter(taken[epoch * 5 : epoch * 5 + 5]) == Counter(TASKS)


def test_group_ids_are_never_used_twice() -> None:
    cursor = TaskCursor(TASKS, 0)
    assert [cursor.take()[0] for _ in range(12)] == list(range(12))


def test_a_task_comes_back_first_and_only_once() -> None:
    cursor = TaskCursor(TASKS, 0)
    first = cursor.take()[1]
    cursor.give_back(first)
    assert cursor.take()[1] == first
    cursor.give_back(first)
    assert cursor.take()[1] != first
