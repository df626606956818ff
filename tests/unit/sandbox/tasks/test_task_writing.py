"""If these fail, a failed conversion leaves a part of a data set, which stops the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.tasks.__main__ import COMMAND
from sandbox.tasks.dataset import dataset_checksum
from sandbox.tasks.formats.generated.generator import held_out_tasks
from sandbox.tasks.formats.registry import FOLDER_FORMATS, TaskFormat, load_tasks
from sandbox.tasks.formats.writing import plan_dataset_write
from sandbox.tasks.task import Task, TaskError
from tests.support.tasks.task_files import write_tasks

GOOD = held_out_tasks(0, 1)[:3]
SHAPES = [TaskFormat.HARBOR, TaskFormat.OPENCLAW, TaskFormat.SWE_SYNTH]
"""A format of folders, one of rows that point at folders, and one of rows alone."""


def there(place: Path) -> set[str]:
    return {path.name for path in place.rglob("*")}


@pytest.mark.parametrize("form", SHAPES)
def test_nothing_is_written_if_any_target_exists_already(tmp_path: Path, form: TaskFormat):
    target = tmp_path / "out"
    last = {TaskFormat.HARBOR: target / GOOD[-1].id, TaskFormat.OPENCLAW: tmp_path / "tasks" / GOOD[-1].id}.get(
        form, target
    )
    last.mkdir(parents=True)
    before = there(tmp_path)
    with pytest.raises(TaskError, match="exists already"):
        write_tasks(GOOD, form, target)
    assert there(tmp_path) == before
    last.rmdir()
    write_tasks(GOOD, form, target)
    assert dataset_checksum(load_tasks(target, form).tasks) == dataset_checksum(tuple(GOOD))


@pytest.mark.parametrize("form", SHAPES)
def test_a_target_below_a_file_is_refused(tmp_path: Path, form: TaskFormat):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TaskError, match="cannot be written"):
        write_tasks(GOOD, form, tmp_path / "file" / "out")
    assert there(tmp_path) == {"file"}


def test_files_written_before_a_failure_are_removed(tmp_path: Path):
    too_long = tmp_path / ("x" * 254)
    with pytest.raises(TaskError, match="cannot be written"):
        write_tasks(GOOD, TaskFormat.OPENCLAW, too_long)
    assert there(tmp_path) == {"tasks"}
    write_tasks(GOOD, TaskFormat.OPENCLAW, tmp_path / "rows.jsonl")
    assert load_tasks(tmp_path / "rows.jsonl").tasks == tuple(GOOD)


def test_a_task_that_the_format_cannot_hold_is_named_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_tasks([*GOOD, Task("other", "Do it.", run_tests="true\n")], TaskFormat.HARBOR, tmp_path / "all")
    out = tmp_path / "g.jsonl"
    assert COMMAND.call(["convert", str(tmp_path / "all"), "--to", "generated", "--output", str(out)]) == 1
    stdout = capsys.readouterr().out
    assert "task other: is not a generated task" in stdout
    assert "3 tasks written" in stdout
    assert "1 left out" in stdout
    assert dataset_checksum(load_tasks(out).tasks) == dataset_checksum(tuple(GOOD))


def test_two_tasks_of_one_name_and_a_file_below_a_file_are_named_before_anything_is_written(tmp_path: Path):
    below = Task("below", "x", run_tests="true\n", tests={"a": b"", "a/b": b""})
    planned = plan_dataset_write(FOLDER_FORMATS[TaskFormat.HARBOR], [*GOOD, GOOD[0], below], tmp_path)
    assert [problem.what for problem in planned.problems] == [
        f"is a second task named {GOOD[0].id!r}",
        "'tests/a/b' is or lies below a file",
    ]
    planned.write()
    assert {path.name for path in tmp_path.iterdir()} == {task.id for task in GOOD}
