"""If these fail, converting a data set loses fields that the target format lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.file_tree import FileTree, read_tree, write_tree
from sandbox.tasks.formats.folders import encode_task_folder, load_task_folder, write_task_folder
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.generated.generator import held_out_tasks, make_task
from sandbox.tasks.formats.registry import FOLDER_FORMATS, ROW_FORMATS, TaskFormat, detect_format, load_tasks
from sandbox.tasks.task import Task, TaskError
from tests.support.tasks.arbitrary_tasks import stepped_tasks, tasks
from tests.support.tasks.task_files import write_tasks

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANY = [form for form in TaskFormat if form is not TaskFormat.GENERATED]


@pytest.mark.first_case
@pytest.mark.parametrize("form", FOLDER_FORMATS)
@quick
@given(task=tasks())
def test_any_task_survives_a_folder(form: TaskFormat, tmp_path_factory: pytest.TempPathFactory, task: Task):
    written = encode_task_folder(FOLDER_FORMATS[form], task)
    folder = write_tree(written, tmp_path_factory.mktemp("any") / task.id)
    assert read_tree(folder) == FileTree(written)
    loaded = load_task_folder(FOLDER_FORMATS[form], folder)
    assert loaded.problems == ()
    assert loaded.task == task


@pytest.mark.first_case
@pytest.mark.parametrize("form", [form for form in ROW_FORMATS if form is not TaskFormat.GENERATED])
@quick
@given(some=st.lists(tasks(), min_size=1, max_size=2, unique_by=lambda task: task.id))
def test_any_tasks_survive_a_file(form: TaskFormat, tmp_path_factory: pytest.TempPathFactory, some: list[Task]):
    path = tmp_path_factory.mktemp("any") / "rows.jsonl"
    write_tasks(some, form, path)
    assert detect_format(path) is form
    found = load_tasks(path)
    assert found.problems == ()
    assert list(found.tasks) == some


@pytest.mark.first_case
@settings(quick, max_examples=15)
@given(task=stepped_tasks())
def test_a_task_of_several_steps_survives_a_folder_of_harbor_and_of_no_other(
    tmp_path_factory: pytest.TempPathFactory, task: Task
):
    parent = tmp_path_factory.mktemp("any")
    form = FOLDER_FORMATS[TaskFormat.HARBOR]
    loaded = load_task_folder(form, write_task_folder(form, task, parent))
    assert (loaded.problems, loaded.task) == ((), task)
    with pytest.raises(TaskError, match="steps"):
        write_task_folder(FOLDER_FORMATS[TaskFormat.TERMINAL_BENCH], task, parent / "other")


@pytest.mark.parametrize("form", TaskFormat)
def test_generated_tasks_survive_every_format(form: TaskFormat, tmp_path: Path):
    some = [*held_out_tasks(0, 1), make_task("sort", 12345678901, TaskSplit.TRAIN)]
    write_tasks(some, form, tmp_path / "out")
    found = load_tasks(tmp_path / "out", form)
    assert found.problems == ()
    assert sorted(found.tasks, key=lambda task: task.id) == sorted(some, key=lambda task: task.id)
    assert len(found.tasks) == len(FAMILIES) + 1


def test_converting_through_every_format_in_turn_changes_nothing(tmp_path: Path):
    some = held_out_tasks(3, 1)
    for number, form in enumerate(ANY):
        write_tasks(some, form, tmp_path / f"{number}" / "out")
        some = list(load_tasks(tmp_path / f"{number}" / "out", form).tasks)
    assert {task.id: task for task in some} == {task.id: task for task in held_out_tasks(3, 1)}
