"""If these fail, what is handed on is not what was said, or is read by nobody whose form it claims to have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.data.sft_examples import SequenceSelection, read_examples
from launch.export.__main__ import COMMAND
from launch.export.hugging_face import COLUMNS
from launch.settings.data import OverlongAction
from protocol.cli.exit_codes import EXIT_OK, EXIT_USER, main_guard
from tests.support.runs.evaluations import write_evaluation_with_trajectory
from tests.support.runs.recorded_trajectories import make_run_config, record_trajectory, tokenizer, tool_call, write_run

PASSES = [f"First.\n{tool_call('ls')}\n{tool_call('false')}", tool_call("touch x"), "done"]
FAILS = [tool_call("ls"), "<tool_call>{</tool_call>", "done"]
ALL = SequenceSelection(
    max_tokens=100_000, overlong=OverlongAction.ERROR, vocabulary=10_000, min_score=None, reward_weighted=False
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Three trajectories, of which the second and the third failed."""
    run = make_run_config("agent.kind=hermes")
    texts = (PASSES, FAILS, FAILS)
    made = [record_trajectory(run, replies, number=number, task=f"t{number}") for number, replies in enumerate(texts)]
    return write_run(tmp_path / "demo-1", run, made)


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """One attempt by calls that its server read, and one that was tried again."""
    return write_evaluation_with_trajectory(tmp_path / "eval-1", make_run_config("agent.kind=hermes"))


def exported(source: Path, kind: str, output: Path, *words: str) -> Path:
    assert COMMAND.call([str(source), "--format", kind, "--output", str(output), *words]) == EXIT_OK
    return output


def test_training_on_exported_conversations_trains_the_sampled_tokens(run_dir: Path, tmp_path: Path) -> None:
    """The same ids and the same loss, whether sft reads the run or what was exported of it."""
    file = exported(run_dir, "sharegpt", tmp_path / "all.jsonl")
    of_file, of_run = (read_examples([source], tokenizer(), ALL) for source in (file, run_dir))
    assert [each.token_ids.tolist() for each in of_file.examples] == [
        each.token_ids.tolist() for each in of_run.examples
    ]
    assert [each.loss_mask.tolist() for each in of_file.examples] == [
        each.loss_mask.tolist() for each in of_run.examples
    ]
    assert [json.loads(line)["score"] for line in file.read_text().splitlines()] == [1.0, 0.0, 0.0]


def test_a_conversation_of_an_evaluation_has_its_thoughts_and_is_that_of_the_last_try(
    evaluation: Path, tmp_path: Path
) -> None:
    (line,) = exported(evaluation, "sharegpt", tmp_path / "a.jsonl").read_text().splitlines()
    conversation = json.loads(line)
    assert [each["from"] for each in conversation["conversations"]] == ["system", "human", "gpt", "observation", "gpt"]
    assert conversation["conversations"][-1]["value"] == "<think>\nok\n</think>\n\ndone"
    assert (conversation["id"], conversation["model"], conversation["passed"]) == ("eval-1/a/0", "v1", True)
    assert json.loads(conversation["tools"])[0]["function"]["name"] == "shell_exec"


def checked(trajectory: dict[str, Any]) -> dict[str, Any]:
    """By Harbor's own models where they are installed, and by the rules of its RFC 0001 that these enforce."""
    try:
        from harbor.models.trajectories import Trajectory
    except ImportError:
        pass
    else:
        Trajectory.model_validate(trajectory)
    assert {"schema_version", "session_id", "agent", "steps"} <= trajectory.keys()
    assert [step["step_id"] for step in trajectory["steps"]] == list(range(1, len(trajectory["steps"]) + 1))
    for step in trajectory["steps"]:
        ids = {each["tool_call_id"] for each in step.get("tool_calls", [])}
        results = step.get("observation", {}).get("results", [])
        assert {each["source_call_id"] for each in results if "source_call_id" in each} <= ids
        if step["source"] != "agent":
            assert not step.keys() & {"tool_calls", "metrics", "reasoning_content"}
    return trajectory


def test_a_step_of_atif_has_its_calls_results_and_tokens(run_dir: Path, tmp_path: Path) -> None:
    folder = exported(run_dir, "atif", tmp_path / "atif")
    names = [f"demo-1.train-g{number:06d}-s00.json" for number in range(3)]
    assert sorted(file.name for file in folder.iterdir()) == names
    passed, failed, _ = (checked(json.loads((folder / name).read_text())) for name in names)
    first = next(step for step in passed["steps"] if step["source"] == "agent")
    assert first["message"] == "First."
    assert [(each["function_name"], each["arguments"]) for each in first["tool_calls"]] == [
        ("shell_exec", {"command": "ls"}),
        ("shell_exec", {"command": "false"}),
    ]
    results = first["observation"]["results"]
    assert [each["source_call_id"] for each in results] == ["call_0_0", "call_0_1"]
    assert results[1]["content"] == "false\nsays <|2|>\n"
    assert len(first["metrics"]["completion_token_ids"]) == len(first["metrics"]["logprobs"])
    assert passed["final_metrics"]["total_steps"] == len(passed["steps"])
    assert (passed["extra"]["task"], passed["extra"]["passed"], passed["extra"]["reward"]) == ("t0", True, 1.0)
    assert [each["name"] for each in passed["extra"]["tests"]] == ["one", "two"]
    malformed = [step for step in failed["steps"] if step["source"] == "agent"][1]
    assert "tool_calls" not in malformed
    assert "source_call_id" not in malformed["observation"]["results"][0]


def test_thoughts_are_a_separate_field_in_atif(evaluation: Path, tmp_path: Path) -> None:
    (file,) = exported(evaluation, "atif", tmp_path / "atif").iterdir()
    document = checked(json.loads(file.read_text()))
    agent = [step for step in document["steps"] if step["source"] == "agent"]
    assert [(step["reasoning_content"], step["message"]) for step in agent] == [("hm", "I look."), ("ok", "done")]
    assert document["final_metrics"] == {"total_prompt_tokens": 40, "total_completion_tokens": 14, "total_steps": 4}
    assert "metrics" not in agent[0]


def test_hugging_face_loads_the_folder(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from datasets import load_dataset

    folder = exported(run_dir, "huggingface", tmp_path / "set")
    rows = load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert rows.column_names == [name for name, _ in COLUMNS]
    assert (rows["task"][:], rows["passed"][:]) == (["t0", "t1", "t2"], [True, False, False])
    assert rows[0]["messages"][-1] == {"role": "assistant", "content": "done"}
    assert rows[0]["tests"] == [{"name": "one", "passed": True}, {"name": "two", "passed": True}]
    card = (folder / "README.md").read_text()
    assert "3 trajectories of agents in terminals, passed or not" in card
    assert str(run_dir) in card


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        ([], ["t0", "t1", "t2"]),
        (["--passed"], ["t0"]),
        (["--only", "t*", "--only", "!t1"], ["t0", "t2"]),
        (["--min-reward", "0.5"], ["t0"]),
        (["--min-reward", "-1", "--only", "t2"], ["t2"]),
    ],
)
def test_only_trajectories_that_pass_every_filter_are_exported(
    run_dir: Path, tmp_path: Path, words: list[str], tasks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = exported(run_dir, "sharegpt", tmp_path / "out" / "some.jsonl", *words)
    assert [json.loads(line)["task"] for line in file.read_text().splitlines()] == tasks
    assert f"{len(tasks)} trajectories" in capsys.readouterr().out


def test_a_conversation_that_readers_refuse_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty reply is no message to learn from."""
    run = make_run_config("agent.kind=bash")
    bash = ["", "```bash\nls\n```", "x", "y"]
    made = [record_trajectory(run, replies, number=number) for number, replies in enumerate((bash, bash[1:]))]
    file = exported(write_run(tmp_path / "demo-1", run, made), "sharegpt", tmp_path / "some.jsonl")
    assert len(file.read_text().splitlines()) == 1
    assert "left out: 1 for unfit" in capsys.readouterr().out
    assert len(read_examples([file], tokenizer(), ALL).examples) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["/nowhere"], "is neither a run's id or directory nor an evaluation's folder"),
        (["{run}", "{run}"], "named twice"),
        (["{run}", "--only", "nothing"], "nothing is left to export (3 for task left out)"),
        (["{run}", "--output", "{run}"], "exists, and nothing is overwritten"),
        (["{run}", "--output", "/proc/x/y"], "cannot write /proc/x/y"),
        (["{run}", "--format", "cvs"], "'cvs' is not one of "),
        (["{run}", "--min-reward", "nan"], "must be a finite number, not 'nan'"),
    ],
)
@pytest.mark.parametrize("kind", ["sharegpt", "atif", "huggingface"])
def test_an_invalid_export_is_refused_in_one_line_and_leaves_nothing(
    run_dir: Path, words: list[str], says: str, kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--format", kind, "--output", str(tmp_path / "new"), *(word.format(run=run_dir) for word in words)]
    assert main_guard(lambda: COMMAND.call(arguments)) == EXIT_USER
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert {path.name for path in tmp_path.iterdir()} == {"demo-1"}


def damaged(folder: Path, change: Callable[[bytes], bytes]) -> None:
    file = next((folder / "trajectories").glob("trajectories-*.bin"))
    file.write_bytes(change(file.read_bytes()))


def test_a_damaged_trajectory_is_named_and_nothing_is_written(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(run_dir, lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    assert main_guard(lambda: COMMAND.call([str(run_dir), "--output", str(tmp_path / "x.jsonl")])) == EXIT_USER
    assert "cannot be read" in capsys.readouterr().err
    assert not list(tmp_path.glob("*x.jsonl*"))


def test_an_evaluation_without_saved_trajectories_names_the_option_that_saves_them(
    evaluation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (evaluation / "trajectories.jsonl").unlink()
    assert main_guard(lambda: COMMAND.call([str(evaluation)])) == EXIT_USER
    assert "--save-trajectories" in capsys.readouterr().err
