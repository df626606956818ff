"""If these fail, longshore-bench is not forty complete tasks, or its documentation is wrong about them."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from sandbox.grading.isolation.decision import find_isolation_risk
from sandbox.tasks.__main__ import COMMAND
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset
from sandbox.tasks.task import BASE_IMAGE, Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.network_needs import TaskPhase, find_network_needs

LABEL = "longshore-bench"
FOLDER = BUILT_IN_CATALOG.parent / "longshore_bench"
CATEGORIES = {"build", "data", "debug", "git", "security", "services", "text"}
MOST_BYTES = 40_000
FOUND = load_labelled_dataset(BUILT_IN_CATALOG, LABEL)
every_task = pytest.mark.parametrize("task", FOUND.tasks, ids=lambda task: task.id)


def test_all_forty_tasks_are_usable():
    assert FOUND.problems == ()
    assert len(FOUND.tasks) == 40
    assert {task.id for task in FOUND.tasks} == {each.name for each in FOLDER.iterdir() if each.is_dir()}


def test_categories_and_difficulties_are_balanced():
    categories = Counter(task.family for task in FOUND.tasks)
    assert set(categories) == CATEGORIES
    assert all(5 <= count <= 7 for count in categories.values()), categories
    grades = Counter(task.metadata["difficulty"] for task in FOUND.tasks)
    assert set(grades) == {"easy", "medium", "hard"}
    assert min(grades.values()) >= 8, grades


@every_task
def test_a_task_has_all_of_its_parts(task: Task):
    assert task.instruction
    assert task.solution
    assert set(task.foils) == {"near-1", "near-2", "cheat"}
    assert all(script.startswith("# ") for script in task.foils.values()), "a foil says what is wrong with it"
    assert set(json.loads(task.metadata["tags"]))
    assert int(task.metadata["expert_time_estimate_min"]) > 0


@every_task
def test_weights_name_each_test_and_sum_to_one(task: Task):
    tree = ast.parse(task.tests["test_outputs.py"])
    names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    assert list(task.weights) == names
    assert task.expected_tests == tuple(names)
    assert 5 <= len(names) <= 10
    assert sum(task.weights.values()) == pytest.approx(1)
    assert min(task.weights.values()) > 0


@every_task
def test_a_task_runs_in_the_base_image_without_a_network_and_the_toolchain_runs_its_tests(task: Task):
    assert (task.image, task.build, task.services) == (BASE_IMAGE, None, ())
    assert task.network.is_offline
    assert not [need for need in find_network_needs(task) if need.phase is not TaskPhase.VERIFY]
    assert task.grading is GradingLevel.SAME
    assert find_isolation_risk(task.run_tests, task.tests) is None


@every_task
def test_task_files_are_small_texts(task: Task):
    for path in (FOLDER / task.id).rglob("*"):
        if path.is_file():
            assert len(path.read_text("utf-8").encode()) <= MOST_BYTES, path


def test_tests_start_programs_as_nobody_by_one_shared_helper():
    copies = {task.tests["nobody.py"] for task in FOUND.tasks if "nobody.py" in task.tests}
    assert len(copies) == 1
    starting = [task for task in FOUND.tasks if b"subprocess." in task.tests["test_outputs.py"]]
    assert all(b"nobody" in task.tests["test_outputs.py"] for task in starting)


def row(task: Task) -> str:
    metadata = task.metadata
    tags = ", ".join(json.loads(metadata["tags"]))
    minutes = metadata["expert_time_estimate_min"]
    return f"| `{task.id}` | {task.family} | {metadata['difficulty']} | {minutes} | {len(task.weights)} | {tags} |"


def test_the_readme_lists_the_tasks():
    rows = [row(task) for task in sorted(FOUND.tasks, key=lambda task: (task.family, task.id))]
    lines = (FOLDER / "README.md").read_text().partition("| task |")[2].splitlines()
    listed = [line for line in lines if line.startswith("| `")]
    assert listed == rows, "write there:\n" + "\n".join(rows)


def test_the_label_selects_the_tasks(capfd: pytest.CaptureFixture[str]):
    assert COMMAND.call(["list", LABEL, "--json"]) == 0
    output = json.loads(capfd.readouterr().out)
    assert [each["task"] for each in output["tasks"]] == [task.id for task in FOUND.tasks]
    assert output["checksum"] in Path(BUILT_IN_CATALOG).read_text()
