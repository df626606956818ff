"""If these fail, other tasks are evaluated than were asked for, or a score's terms are forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.data.preparation import find_or_build_model
from launch.evaluation.evaluate import COMMAND
from launch.evaluation.evaluation_options import EvaluateArguments
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.evaluation.results.evaluation_settings import (
    build_evaluation_settings,
    read_evaluation_settings,
    write_evaluation_settings,
)
from launch.evaluation.solvers.models import fetch_first_model
from launch.evaluation.task_selection import select_tasks
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from sandbox.tasks.formats.registry import TaskFormat
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.network_policy import NetworkPolicy
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import ONLINE
from tests.support.fakes.fake_chat import serve_fake_chat
from tests.support.runs.recorded_trajectories import make_run_config
from tests.support.tasks.task_files import write_tasks


def arguments(*words: str) -> EvaluateArguments:
    parsed = parse_arguments(EvaluateArguments, ["demo", "--noop", "--tasks", "x", *words], "evaluate")
    parsed.check()
    return parsed


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for number in (100, 101, 110):
        write_task(
            Task(f"swe-{number}", "Mend it.", run_tests="true\n", expected_tests=("a",), solution="true\n"),
            tmp_path / "tasks",
        )
    return tmp_path / "tasks"


def test_tasks_are_named_by_ids_numbers_and_ranges(tasks: Path) -> None:
    ids = arguments("--task-ids", "101-110, swe-100").selected_task_ids
    chosen = select_tasks(str(tasks), Path("datasets.toml"), ["!*110"], ids)
    assert list(chosen.tasks) == ["swe-100", "swe-101"]
    assert chosen.checksum == select_tasks(str(tasks), Path("datasets.toml"), []).checksum, (
        "a part is of the same data set"
    )


def test_a_data_set_label_is_looked_up_in_the_project_and_then_in_longshore(tasks: Path, tmp_path: Path) -> None:
    own = tmp_path / "datasets.toml"
    ours = select_tasks("longshore-bench", own, [])
    assert len(ours.tasks) == 40
    own.write_text(f'[mine]\npath = "{tasks}"\n')
    assert len(select_tasks("mine", own, []).tasks) == 3
    assert select_tasks("longshore-bench", own, []).checksum == ours.checksum
    with pytest.raises(UserError, match=r"toml has mine, and .*longshore-web, longshore-swe; did you mean"):
        select_tasks("longshore-bnch", own, [])
    own.write_text(f'[longshore-bench]\npath = "{tasks}"\n')
    assert len(select_tasks("longshore-bench", own, []).tasks) == 3


def test_the_prompt_is_part_of_the_evaluation_spec(tasks: Path, tmp_path: Path) -> None:
    """The kind's own too, and what a file says, which the next one under its path need not say."""

    def spec(recipe: str, *keys: str) -> EvaluationSpec:
        return arguments().build_spec(load_recipe(recipe, keys), select_tasks(str(tasks), Path("datasets.toml"), []))

    assert (spec("art_terminal").prompt, spec("seta_qwen3_8b").prompt) == ("bash-1", "seta-1")
    mine = tmp_path / "mine.txt"
    mine.write_text("--- system\nBe brief.\n")
    before = spec("seta_qwen3_8b", f"agent.prompt={mine}")
    mine.write_text("--- system\nBe quick.\n")
    after = spec("seta_qwen3_8b", f"agent.prompt={mine}")
    assert after == replace(before, prompt_checksum=after.prompt_checksum) != before
    brief, quick = (
        spec("seta_qwen3_8b", "agent.prompt=", f"agent.system_prompt={text}") for text in ("Be brief.", "Be quick.")
    )
    assert (brief.prompt, quick.prompt) == ("", "")
    assert brief.prompt_checksum != quick.prompt_checksum


def test_tasks_without_tests_are_named_and_left_out(tmp_path: Path) -> None:
    """A sample of SWE-SYNTH says neither image nor tests: every model would fail it alike."""
    ungraded, graded = Task("swe-synth-1", "Mend it."), Task("swe-synth-2", "Mend it.", run_tests="true\n")
    write_tasks([ungraded, graded], TaskFormat.SWE_SYNTH, tmp_path / "both.jsonl")
    chosen = select_tasks(str(tmp_path / "both.jsonl"), Path("datasets.toml"), [])
    assert (list(chosen.tasks), len(chosen.left_out)) == (["swe-synth-2"], 1)
    assert "task swe-synth-1: has no tests (nothing grades it" in chosen.left_out[0]
    write_tasks([ungraded], TaskFormat.SWE_SYNTH, tmp_path / "one.jsonl")
    with pytest.raises(UserError, match=r"no task to evaluate \(task swe-synth-1: has no tests"):
        select_tasks(str(tmp_path / "one.jsonl"), Path("datasets.toml"), [])
    with pytest.raises(UserError, match=r"none matches nope"):
        select_tasks(str(tmp_path / "one.jsonl"), Path("datasets.toml"), ["nope"])


def test_tasks_whose_tests_cannot_ask_their_judge_are_named_and_left_out(tmp_path: Path) -> None:
    judged = Task("a", "Do it.", run_tests="rewardkit /tests", tests={"q.toml": b"[judge]\n"}, network=ONLINE)
    write_tasks([judged, Task("b", "Do it.", run_tests="true")], TaskFormat.MILES, tmp_path / "both.jsonl")
    selected = select_tasks(str(tmp_path / "both.jsonl"), Path("datasets.toml"), [])
    offline = selected.with_network(NetworkPolicy.NONE)
    assert (list(offline.tasks), len(offline.left_out)) == (["b"], 1)
    assert "task a: tests/q.toml asks a judge of rewardkit" in offline.left_out[0]
    assert list(selected.with_network(NetworkPolicy.TASK).tasks) == ["a", "b"]
    with pytest.raises(UserError, match=r"no task can be evaluated: task a: tests/q\.toml asks a judge"):
        select_tasks(str(tmp_path / "both.jsonl"), Path("datasets.toml"), ["a"]).with_network(NetworkPolicy.NONE)


def test_empty_or_unknown_task_ids_are_refused(tasks: Path) -> None:
    """An unset variable of a shell would evaluate all."""
    with pytest.raises(UserError, match="names no task: write"):
        arguments("--task-ids", " , ")
    with pytest.raises(UserError, match=r"--task-ids: .* has no task '7'"):
        select_tasks(str(tasks), Path("datasets.toml"), [], ["7"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--model= --tasks x", "--model is empty"),
        ("--tasks x", "exactly one of --model, --oracle and --noop"),
        ("--noop --oracle --tasks x", "exactly one of --model, --oracle and --noop"),
        ("--noop --tasks=", "--tasks is empty"),
        ("--noop --tasks x --only=", "--only is empty"),
        ("--model http:// --tasks x", "'http://' is neither a folder nor a URL"),
        ("--model http://h/v1 --tasks x --key-file /none", "--key-file /none cannot be read"),
        ("--noop --tasks x --attempts 10001", "at most 10000"),
        ("--noop --tasks x --seed 99999999999999999999", "at most 9007199254740991"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(words: str, says: str) -> None:
    """An unset variable of a shell would evaluate what lies in the current folder."""
    with pytest.raises(UserError, match=says):
        parse_arguments(EvaluateArguments, ["demo", *words.split()], "evaluate").check()


def test_a_folder_that_holds_no_model_is_refused_before_anything_is_written(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the folder of its evaluation would exist, and the intended evaluation would be refused."""
    monkeypatch.chdir(tmp_path)
    assert COMMAND.main(["demo", "--model", str(tasks), "--tasks", str(tasks)]) == 2
    assert "has no config.json" in capfd.readouterr().err
    assert not (tmp_path / "evaluations").exists()


def test_settings_that_leave_no_room_for_a_reply_are_refused_before_anything_is_written(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without this, the model scores 0 without a single reply."""
    monkeypatch.chdir(tmp_path)
    model, _ = find_or_build_model(load_recipe("demo", [f'run.dir="{tmp_path}"']), tmp_path / "run")
    words = ["demo", "--model", str(model), "--tasks", str(tasks), "--dry-run"]
    assert COMMAND.main(words) == 0
    assert COMMAND.main([*words, "--set", "agent.context_tokens=16", "--set", "agent.max_new_tokens=8"]) == 2
    said = capfd.readouterr().err
    assert "3 of 3 tasks leave no room for a reply: the longest first prompt, of " in said
    assert "agent.context_tokens = 16: --set agent.context_tokens=" in said
    assert not (tmp_path / "evaluations").exists()


def test_terminals_are_recorded_unless_no_record_is_given(tasks: Path) -> None:
    assert (arguments().no_record, arguments("--no-record").no_record) == (False, True)


def test_the_settings_of_an_evaluation_can_be_read_from_any_working_directory(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run_config("agent.kind=bash", "rollout.episode_deadline_s=700")
    write_evaluation_settings(tmp_path, build_evaluation_settings(run, "tasks", Path("datasets.toml")))
    monkeypatch.chdir("/")
    found = read_evaluation_settings(tmp_path)
    assert (found.config, found.tasks, found.datasets) == (run, str(tasks), tmp_path / "datasets.toml")
    assert build_evaluation_settings(run, "a-label", Path("d.toml")).tasks == "a-label"


@pytest.mark.parametrize("text", ["", "{}", '{"config": {"agent": {"kind": 3}}, "tasks": "x", "datasets": "y"}'])
def test_missing_or_invalid_evaluation_settings_are_refused_by_file_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"settings.json"):
        read_evaluation_settings(tmp_path)
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(UserError, match=r"settings.json"):
        read_evaluation_settings(tmp_path)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_a_server_without_a_path_is_asked_at_its_v1(path: str) -> None:
    async with serve_fake_chat(lambda _: "done") as chat:
        words = ["demo", "--model", chat.url.removesuffix("/v1") + path, "--tasks", "x"]
        given = parse_arguments(EvaluateArguments, words, "evaluate")
        assert await fetch_first_model(given, load_recipe("demo")) == "tiny"
