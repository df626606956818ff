"""If these fail, a run trains on other tasks than requested, or silently leaves some out."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.task_selection import select_tasks

BROKEN = Path("/nowhere/swe-8")


def ids(*wanted: str, known: tuple[str, ...] = ("swe-7", "swe-9", "swe-10", "fix-git", "9-11")) -> list[str]:
    found = Dataset(tuple(Task(name, "") for name in known), (TaskError(BROKEN, "is broken", "a test"),))
    return [task.id for task in select_tasks(found, wanted, "tasks").tasks]


def test_ids_numbers_and_ranges_select_tasks_in_data_set_order() -> None:
    assert ids() == ["swe-7", "swe-9", "swe-10", "fix-git", "9-11"]
    assert ids("fix-git", "swe-7") == ["swe-7", "fix-git"]
    assert ids("9") == ["swe-9"]
    assert ids("7-9") == ["swe-7", "swe-9"], "a gap in a range is none of the person's business"
    assert ids("9-11") == ["9-11"], "an id is an id, whatever it looks like"
    assert ids("8-10", "swe-10") == ["swe-9", "swe-10"]
    assert ids("07") == ["swe-7"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("fix-gti", "tasks has no task 'fix-gti'; did you mean 'fix-git'"),
        ("200-300", "tasks has no task '200-300': they are swe-7, swe-9, swe-10 …"),
        ("10-7", "tasks has no task '10-7'"),
        ("", "tasks has no task ''"),
    ],
)
def test_an_entry_that_names_nothing_is_refused(entry: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ids("swe-7", entry)


def test_only_problems_of_selected_tasks_are_kept(tmp_path: Path) -> None:
    for name in ("swe-8", "swe-5"):
        (tmp_path / name).mkdir()
    problems = tuple(TaskError(tmp_path / name, "is broken", "a test") for name in ("swe-8", "swe-5"))
    found = Dataset((Task("swe-7", ""),), problems)
    chosen = select_tasks(found, ["7-8"], "tasks")
    assert ([task.id for task in chosen.tasks], chosen.problems) == (["swe-7"], problems[:1])
