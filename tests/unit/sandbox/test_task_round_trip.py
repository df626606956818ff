"""Who converts a data set loses nothing: whatever a format cannot say, any task comes out of it as it went in."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from sandbox.tasks import harbor, terminal_bench
from sandbox.tasks.folders import FolderFormat, load, tree_of
from sandbox.tasks.task import Task
from sandbox.tasks.tree import Tree, read_tree, write_tree
from tests.support.arbitrary_tasks import tasks

FOLDERS = {"terminal_bench": terminal_bench.FORMAT, "harbor": harbor.FORMAT}
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("form", FOLDERS.values(), ids=FOLDERS.keys())
@quick
@given(tasks())
def test_any_task_survives_a_folder(form: FolderFormat, tmp_path_factory: pytest.TempPathFactory, task: Task):
    written = tree_of(form, task)
    folder = write_tree(written, tmp_path_factory.mktemp("any") / task.id)
    assert read_tree(folder) == Tree(written)
    loaded = load(form, folder)
    assert loaded.problems == ()
    assert loaded.task == task
