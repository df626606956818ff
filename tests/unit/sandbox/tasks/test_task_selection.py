"""If these fail, a run trains on other tasks than requested, or silently leaves some out."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.task_selection import filter_dataset, select_tasks, unmatched_patterns

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


SETA = Dataset(
    (
        Task("git-a", "", family="git", metadata={"difficulty": "easy", "tags": '["merge", "rebase"]'}),
        Task("git-b", "", family="git", metadata={"difficulty": "hard", "tags": '["merge"]'}),
        Task("web-a", "", family="web", metadata={"difficulty": "medium"}),
    ),
    (TaskError(BROKEN, "is broken", "a test"),),
)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["difficulty=easy"], ["git-a"]),
        (["difficulty=easy", "difficulty=medium"], ["git-a", "web-a"]),
        (["difficulty=[em]*", "category=git"], ["git-a"]),
        (["family=git", "!difficulty=hard"], ["git-a"]),
        (["*-a", "tags=merge"], ["git-a"]),
        (["tags=re*"], ["git-a"]),
        (["!tags=merge"], ["web-a"]),
        (["git-*", "web-*"], ["git-a", "git-b", "web-a"]),
    ],
)
def test_tasks_are_selected_by_what_they_say_about_themselves(patterns: list[str], names: list[str]) -> None:
    """SETA's tasks have a difficulty, a category and tags."""
    assert [task.id for task in filter_dataset(SETA, patterns).tasks] == names


def test_an_entry_of_the_command_line_may_be_a_key_too() -> None:
    assert [task.id for task in select_tasks(SETA, ["difficulty=hard", "web-a"], "tasks").tasks] == ["git-b", "web-a"]
    with pytest.raises(UserError, match="tasks has no task 'difficulty=none'"):
        select_tasks(SETA, ["difficulty=none"], "tasks")


def test_a_key_that_no_task_has_is_refused_with_those_that_there_are() -> None:
    says = r"no task says its 'dificulty'; did you mean 'difficulty'\?: tasks say category, difficulty, tags"
    with pytest.raises(UserError, match=says):
        filter_dataset(SETA, ["dificulty=easy"])
    with pytest.raises(UserError, match=says):
        select_tasks(SETA, ["dificulty=easy"], "tasks")


def test_patterns_that_match_nothing_are_told() -> None:
    patterns = ["git-*", "!git-c", "difficulty=easy", "difficulty=none", BROKEN.name]
    assert unmatched_patterns(SETA, patterns) == ["!git-c", "difficulty=none"]
