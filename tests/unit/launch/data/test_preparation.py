"""If these fail, a run trains on what it is tested on, or a resume finds other tasks than the run had."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.data.preparation import PreparedRun, prepare_run, require_model_files
from launch.run.arguments import parse_cluster_arguments
from protocol.errors import UserError
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.generated.generator import make_task
from sandbox.tasks.formats.registry import TaskFormat
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import ONLINE
from tests.support.tasks.task_files import write_tasks

FAMILY, ELSEWHERE = min(FAMILIES), max(FAMILIES)


def prepared(run_dir: Path, *overrides: str) -> PreparedRun:
    return prepare_run(load_recipe("demo", [f'run.dir="{run_dir.parent}"', *overrides]), run_dir)


def data_set(folder: Path, count: int) -> Path:
    """``count`` usable task folders, and one whose tests nobody can run."""
    for n in range(count):
        write_task(make_task(FAMILY, n, TaskSplit.TRAIN), folder)
    (folder / "malformed").mkdir(parents=True)
    (folder / "malformed" / "task.yaml").write_text("instruction: [")
    return folder


def from_folder(run_dir: Path, folder: Path, *overrides: str) -> PreparedRun:
    return prepared(run_dir, "data.kind=terminal_bench", f'data.path="{folder}"', 'data.held_out_family=""', *overrides)


def test_generated_tasks_for_training_and_for_evaluation_have_nothing_in_common(tmp_path: Path) -> None:
    settings = (
        f'data.held_out_family="{FAMILY}"',
        "data.training_tasks=40",
        "rollout.groups_per_step=4",
        "evaluation.tasks_per_family=1",
    )
    found = prepared(tmp_path / "run", *settings)
    assert len(found.training_ids) == 40
    assert not {found.tasks[name].instruction for name in found.training_ids} & {
        found.tasks[name].instruction for name in found.held_out_ids
    }
    assert FAMILY not in {found.tasks[name].family for name in found.training_ids}
    assert {found.tasks[name].family for name in found.held_out_ids} == set(FAMILIES)
    assert not found.warm_started
    again = prepared(tmp_path / "run", *settings)
    assert (again.training_ids, again.held_out_ids, again.tasks) == (
        found.training_ids,
        found.held_out_ids,
        found.tasks,
    )


SMALL = ("data.training_tasks=4", "rollout.groups_per_step=4", "evaluation.tasks_per_family=1", "model.layers=1")
KILLED = """
import os, signal, sys
from pathlib import Path
from launch.run.arguments import parse_cluster_arguments
from launch.config import load_recipe
from launch.data.preparation import prepare_run

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "tasks":
    Path.chmod = killed  # of the first file of the first task
else:
    from launch.data.demo import hugging_face
    hugging_face.save_model = killed
prepare_run(load_recipe("demo", sys.argv[3:]), Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("during", ["tasks", "model"])
def test_a_kill_during_preparation_leaves_nothing_that_a_resume_takes_for_complete(during: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, during, str(run_dir), *SMALL, f'run.dir="{tmp_path}"']
    assert subprocess.run(command, check=False, timeout=120).returncode == -9
    assert list(run_dir.rglob(".*.partial/*"))
    resumed, fresh = prepared(run_dir, *SMALL), prepared(tmp_path / "fresh", *SMALL)
    assert resumed.tasks == fresh.tasks
    assert {path.name: path.read_bytes() for path in resumed.model_path.iterdir()} == {
        path.name: path.read_bytes() for path in fresh.model_path.iterdir()
    }
    assert not list(run_dir.rglob("*.partial"))


def test_a_task_folder_that_cannot_be_used_is_named_and_the_rest_is_trained(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "tasks", 10)
    found = from_folder(tmp_path / "run", folder)
    assert (len(found.training_ids), len(found.held_out_ids)) == (8, 2)
    assert not set(found.training_ids) & set(found.held_out_ids)
    (problem,) = found.problems
    assert "malformed" in problem
    assert "task.yaml" in problem
    assert from_folder(tmp_path / "run", folder).held_out_ids == found.held_out_ids
    splits = {from_folder(tmp_path / "run", folder, f"run.seed={seed}").held_out_ids for seed in range(4)}
    assert len(splits) > 1


def test_the_family_that_is_held_out_of_a_folder_is_not_trained(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "tasks", 6)
    for n in range(4):
        write_task(make_task("sort", n, TaskSplit.TRAIN), folder)
    of_two = ("data.held_out_family=sort", "evaluation.tasks_per_family=2")
    found = from_folder(tmp_path / "run", folder, *of_two)
    assert {found.tasks[name].family for name in found.training_ids} == {FAMILY}
    assert [found.tasks[name].family for name in found.held_out_ids].count("sort") == 2
    with pytest.raises(UserError, match=r"'sorte': choose one of .*--set data\.held_out_family=.*did you mean 'sort'"):
        from_folder(tmp_path / "run", folder, "data.held_out_family=sorte")
    assert from_folder(tmp_path / "run", folder, f"data.held_out_family={ELSEWHERE}").training_ids
    for seed in range(5):
        found = from_folder(tmp_path / "run", folder, *of_two, f"run.seed={seed}")
        assert FAMILY in {found.tasks[name].family for name in found.held_out_ids}, (
            "nothing that is trained is evaluated"
        )
    with pytest.raises(UserError, match=r"every task of .* is of the family .*--set data\.held_out_family="):
        from_folder(tmp_path / "run", data_set(tmp_path / "alone", 3), f"data.held_out_family={FAMILY}")


def test_tasks_without_a_family_are_trained_if_no_family_is_held_out(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "tasks", 5)
    for place in folder.glob("*/task.yaml"):
        lines = place.read_text().splitlines(keepends=True)
        place.write_text("".join(line for line in lines if not line.startswith("category")))
    found = from_folder(tmp_path / "run", folder)
    assert {task.family for task in found.tasks.values()} == {""}
    assert (len(found.training_ids), len(found.held_out_ids)) == (4, 1)


def test_a_task_is_named_and_left_out_if_its_first_prompt_leaves_no_room(tmp_path: Path) -> None:
    """Its rewards never differ, so that it would be given out for ever."""
    folder = data_set(tmp_path / "tasks", 5)
    long = make_task(FAMILY, 99, TaskSplit.TRAIN)
    write_task(replace(long, id="long", instruction=long.instruction * 200), folder)
    found = from_folder(tmp_path / "run", folder)
    assert "long" not in {*found.tasks, *found.training_ids, *found.held_out_ids}
    assert any("long: its first prompt has" in problem for problem in found.problems)
    short = ("agent.context_tokens=8", "agent.max_new_tokens=4")
    with pytest.raises(UserError, match=r"no task to train on leaves room.*--set agent\.context_tokens=\d+"):
        prepared(tmp_path / "run", *SMALL, *short)


def of_data(run_dir: Path, kind: str, path: Path, *overrides: str) -> PreparedRun:
    return prepared(run_dir, f"data.kind={kind}", f'data.path="{path}"', 'data.held_out_family=""', *overrides)


ROWS = (TaskFormat.OPENCLAW, TaskFormat.OPENCLAW_MESSAGES, TaskFormat.MILES, TaskFormat.SWE_SYNTH)


@pytest.mark.parametrize("form", [TaskFormat.HARBOR, *ROWS])
def test_tasks_in_every_format_are_read_by_format_name_or_by_detection(form: TaskFormat, tmp_path: Path) -> None:
    wanted = {f"{FAMILY}-{n}": replace(make_task(FAMILY, n, TaskSplit.TRAIN), id=f"{FAMILY}-{n}") for n in range(5)}
    place = tmp_path / "there" / ("tasks" if form is TaskFormat.HARBOR else "rows.jsonl")
    place.parent.mkdir()
    write_tasks(wanted.values(), form, place)
    found = of_data(tmp_path / "run", form, place)
    assert found.tasks == wanted
    assert (len(found.training_ids), len(found.held_out_ids)) == (4, 1)
    assert of_data(tmp_path / "run", "dataset", place).training_ids == found.training_ids


def test_rows_that_cannot_be_used_are_named_and_the_others_are_trained(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_tasks([make_task(FAMILY, n, TaskSplit.TRAIN) for n in range(5)], TaskFormat.GENERATED, rows)
    rows.write_text(f"{{\n{rows.read_text()}")
    found = of_data(tmp_path / "run", "dataset", rows)
    assert len(found.tasks) == 5
    (problem,) = found.problems
    assert f"{rows}:1" in problem
    rows.write_text('{"nothing": "known"}\n')
    with pytest.raises(UserError, match=r"rows\.jsonl:1: is no row in a known format"):
        of_data(tmp_path / "run", "dataset", rows)
    for row, says in (
        ('{"task_id": 5, "problem_statement": "x", "bug_types": []}', "as swe_bug it lacks bug, original, source"),
        (
            '{"task_id": 5, "source": {}, "bug": {}}',
            "as swe_bug it lacks original; longshore tasks validate FILE --format NAME",
        ),
        ('{"task_id": 5, "problem', r"is not readable JSON \(.*column"),
    ):
        rows.write_text(f"\n{row}\n")
        with pytest.raises(UserError, match=rf"rows\.jsonl:2: .*{says}"):
            of_data(tmp_path / "run", "dataset", rows)
    rows.write_text('{"nothing": "known"}\n')
    with pytest.raises(UserError, match=r"no usable task.*longshore tasks validate \S+rows\.jsonl --format code"):
        of_data(tmp_path / "run", "code", rows)


def test_rows_without_tests_are_named_and_the_others_are_trained(tmp_path: Path) -> None:
    """A run on them alone would sample for ever, as no reward of theirs differs from another."""
    both, alone = tmp_path / "both.jsonl", tmp_path / "alone.jsonl"
    sample, others = Task("swe-synth-1", "Mend it."), [make_task(FAMILY, n, TaskSplit.TRAIN) for n in range(5)]
    write_tasks([sample, *others], TaskFormat.SWE_SYNTH, both)
    found = of_data(tmp_path / "run", "dataset", both)
    assert sorted(found.tasks) == sorted(task.id for task in others)
    (problem,) = found.problems
    assert "swe-synth-1: has no tests" in problem
    write_tasks([sample], TaskFormat.SWE_SYNTH, alone)
    with pytest.raises(UserError, match=r"no usable task, the first because .*swe-synth-1: has no tests"):
        of_data(tmp_path / "run", "dataset", alone)


def test_tasks_whose_tests_cannot_ask_their_judge_are_named_and_the_others_are_trained(tmp_path: Path) -> None:
    others = [make_task(FAMILY, n, TaskSplit.TRAIN) for n in range(5)]
    judged = Task("judged", "Do.", run_tests="rewardkit /tests", tests={"q.toml": b"[judge]\n"}, network=ONLINE)
    write_tasks([judged, *others], TaskFormat.MILES, rows := tmp_path / "rows.jsonl")
    found = of_data(tmp_path / "run", "dataset", rows)
    assert sorted(found.tasks) == sorted(task.id for task in others)
    assert "tests/q.toml asks a judge of rewardkit" in found.problems[0]


def test_a_run_accepts_a_label_of_the_projects_data_sets(tmp_path: Path) -> None:
    data_set(tmp_path / "tasks", 5)
    file = tmp_path / "datasets.toml"
    file.write_text('[mine]\npath = "tasks"\nfilter = ["!malformed"]\n')
    assert len(of_data(tmp_path / "run", "dataset", file, "data.label=mine").tasks) == 5
    with pytest.raises(UserError, match="has no data set 'yours': choose one of mine"):
        of_data(tmp_path / "run", "dataset", file, "data.label=yours")
    for overrides, says in (
        ([], "set data.label to one of them"),
        (["data.label=mine", "data.kind=harbor"], "set data.kind = 'dataset', or remove data.label"),
        (["data.label=mine", "data.root=/tmp"], "remove data.root"),
    ):
        with pytest.raises(UserError, match=says):
            of_data(tmp_path / "run", "dataset", file, *overrides)


def test_only_the_tasks_that_were_asked_for_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    for n in (*range(101, 106), 200):
        write_task(replace(make_task(FAMILY, n, TaskSplit.TRAIN), id=f"task-{n}"), folder)
    words = ["demo", "--task-ids", "101-103,task-200", "--set", "data.kind=terminal_bench"]
    config = parse_cluster_arguments(
        [*words, "--set", f"data.path={folder}", "--set", "data.held_out_family=''"]
    ).load_config()
    assert config.data.task_ids == ("101-103", "task-200")
    found = prepare_run(config, tmp_path / "run")
    assert (
        set(found.tasks)
        == {*found.training_ids, *found.held_out_ids}
        == {"task-101", "task-102", "task-103", "task-200"}
    )
    with pytest.raises(UserError, match=r"data\.task_ids: \S+ has no task 'task-301'; did you mean 'task-101'"):
        from_folder(tmp_path / "run", folder, 'data.task_ids=["task-301"]')


def test_tasks_named_as_held_out_are_not_trained_and_all_others_are(tmp_path: Path) -> None:
    """Otherwise a checkpoint would be chosen by other tasks than those that its figures describe."""
    folder = tmp_path / "tasks"
    for n in range(1, 21):
        write_task(replace(make_task(FAMILY, n, TaskSplit.TRAIN), id=f"task-{n}"), folder)
    ids = {n: f"task-{n}" for n in range(1, 21)}

    def divided_by(*overrides: str) -> tuple[set[str], set[str]]:
        found = from_folder(tmp_path / "run", folder, *overrides)
        return {*found.training_ids}, {*found.held_out_ids}

    few = "evaluation.tasks_per_family=0"
    assert divided_by('data.held_out_ids=["11-12"]', few) == ({*ids.values()} - {ids[11], ids[12]}, {ids[11], ids[12]})
    assert divided_by('data.task_ids=["1-3"]', 'data.held_out_ids=["2", "11"]') == ({ids[1], ids[3]}, {ids[2], ids[11]})
    assert divided_by(few) == ({*ids.values()}, set())
    with pytest.raises(UserError, match=r"data\.held_out_ids: \S+ has no task '21'"):
        divided_by('data.held_out_ids=["21"]')
    with pytest.raises(UserError, match=r"nothing to train on.*hold none out, --set data\.held_out_ids="):
        divided_by('data.held_out_ids=["1-20"]')


def test_a_folder_without_a_usable_task_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "tasks", 0)
    with pytest.raises(UserError, match=r"no usable task.*malformed.*longshore tasks validate"):
        from_folder(tmp_path / "run", folder)


def test_a_model_folder_without_model_or_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json.*--model"):
        prepared(tmp_path / "run", f'model.path="{tmp_path}"', "warm_start.enabled=false")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"has no tokenizer_config\.json"):
        prepared(tmp_path / "run", f'model.path="{tmp_path}"', "warm_start.enabled=false")
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=r"config\.json holds no JSON object"):
        prepared(tmp_path / "run", f'model.path="{tmp_path}"', "warm_start.enabled=false")


def test_a_model_folder_without_weights_is_refused(tmp_path: Path) -> None:
    model = prepared(tmp_path / "run", *SMALL).model_path
    for weights in model.glob("*.safetensors*"):
        weights.unlink()
    with pytest.raises(UserError, match=r"has no weights.*--model"):
        require_model_files(model)


def test_a_model_folder_with_a_pipe_in_a_files_place_is_refused(tmp_path: Path) -> None:
    """Whoever opens a pipe to read waits until somebody writes to it; a link is usual in a cache of models."""
    (tmp_path / "README.md").symlink_to(__file__)
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match=r"config\.json is neither a file nor a folder"):
        require_model_files(tmp_path)
