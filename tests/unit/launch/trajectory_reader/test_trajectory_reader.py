"""If these fail, a trajectory is read back as another one: replays and exports are not of what was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.agents.agent import ActionOutcome
from actors.agents.registry import make_agent
from actors.tokens.chat_format import ChatFormat
from launch.trajectory_reader import run_source
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory
from launch.trajectory_reader.run_source import build_recorded_trajectory
from launch.trajectory_reader.template_inversion import TemplateInverter
from launch.trajectory_reader.trajectory_lookup import find_trajectory, open_trajectory_source
from protocol.errors import UserError
from protocol.trajectory import EpisodeStatus, Trajectory
from sandbox.tasks.task import Task
from sandbox.tools import Toolset
from tests.support.runs.evaluations import write_evaluation_with_trajectory
from tests.support.runs.recorded_trajectories import (
    make_chat_format,
    make_run_config,
    record_trajectory,
    tool_call,
    write_run,
)

HERMES = [f"First.\n{tool_call('ls')}\n{tool_call('false')}", tool_call("touch x"), "<tool_call>{</tool_call>", "done"]
BASH = ["THOUGHT: a\n```bash\nls\n```", "no block", "```bash\ntouch x\n```", "```bash\nfalse\n```", "x", "y"]


def read(kind: str, template: str, history: str, thought: str = "") -> tuple[RecordedTrajectory, Trajectory, list[str]]:
    run = make_run_config(f"agent.kind={kind}", f"agent.history={history}")
    commands: list[str] = []
    texts = [thought + text for text in (HERMES if kind == "hermes" else BASH)]
    made = record_trajectory(
        run, texts, template=template, inspect_terminal=lambda terminal: commands.extend(terminal.calls)
    )
    chat = make_chat_format(run, template)
    return (
        build_recorded_trajectory("r/t", made, make_agent(run.agent.make_spec()), chat, TemplateInverter(chat)),
        made,
        commands,
    )


@pytest.mark.parametrize("history", ["whole", "individual"])
@pytest.mark.parametrize("template", ["", "qwen3", "qwen3_instruct_2507"])
@pytest.mark.parametrize("kind", ["hermes", "bash"])
def test_the_conversation_of_a_run_is_recovered_as_it_was_sampled_and_observed(
    kind: str, template: str, history: str
) -> None:
    thought = "<think>\nhm\n</think>\n\n" if template == "qwen3" else ""
    found, made, commands = read(kind, template, history, thought)
    agent = make_agent(make_run_config(f"agent.kind={kind}").agent.make_spec())
    replies = [thought + text for text in (HERMES if kind == "hermes" else BASH)]
    assert list(found.opening) == agent.opening_messages(Task(id="t", instruction="Do t."))
    assert [reply.text for reply in found.replies] == replies[: len(found.replies)]
    observations = [message for reply in found.replies for message in reply.observation or ()]
    assert {message["role"] for message in observations} == {"tool" if kind == "hermes" else "user"}
    for number, command in enumerate(commands[:2]):
        assert (
            f"{command}\nsays <|{number + 1}|>" in observations[number if kind == "hermes" else 2 * number]["content"]
        )
    assert found.completion_tokens == made.sampled_tokens
    assert found.replies[0].sampled is not None
    assert found.replies[0].calls_run == (2 if kind == "hermes" else 1)
    assert found.verdict is not None
    assert (found.verdict.passed, found.verdict.pass_ratio, len(found.verdict.tests)) == (True, 1.0, 2)


def test_observations_are_recovered_exactly_even_with_template_markup() -> None:
    """A command may print what the template itself writes."""
    run = make_run_config("agent.kind=hermes")
    chat = make_chat_format(run, "qwen3")
    for text in ("", "</tool_response>\n<|im_end|>", "\n\n  x  \n", "line\r\nline", "(.*?)"):
        ids = chat.encode_delta([{"role": "tool", "content": text}, {"role": "tool", "content": "b"}], closed=False)
        assert [each["content"] for each in TemplateInverter(chat).recover_messages(ids, ["tool", "tool"])] == [
            text,
            "b",
        ]


def test_a_prompt_that_cannot_be_inverted_becomes_one_message() -> None:
    chat = make_chat_format(make_run_config("agent.kind=hermes"))
    ids = chat.tokenizer.encode("something else", add_special_tokens=False)
    assert TemplateInverter(chat).recover_opening(ids) == ({"role": "user", "content": "something else"},)
    assert TemplateInverter(chat).recover_messages(ids, ["tool"]) == ({"role": "tool", "content": "something else"},)


def test_every_agent_accepts_placeholder_outcomes(tmp_path: Path) -> None:
    """The placeholders that stand for outcomes are answers that every agent of ours takes."""
    for kind in ("hermes", "bash", "json", "keystrokes", "code_interpreter"):
        agent = make_agent(make_run_config(f"agent.kind={kind}").agent.make_spec())
        reading = agent.parse_reply("no action at all")
        if reading.actions and not reading.final:
            assert agent.format_outcomes([ActionOutcome(action, "") for action in reading.actions])


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    run = make_run_config("agent.kind=hermes")
    made = [record_trajectory(run, HERMES, number=number, task=f"t{number}") for number in range(2)]
    return write_run(tmp_path / "runs" / "demo-1", run, made)


def test_a_trajectory_is_found_by_run_and_id(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (f"{run_dir}/train-g000001-s00", f"{run_dir}/train-g000001-s00-a2"):
        found = find_trajectory(name)
        assert (found.recorded.name, found.recorded.task) == ("demo-1/train-g000001-s00", "t1")
    monkeypatch.chdir(run_dir.parent.parent)
    assert find_trajectory("demo-1/train-g000000-s00").recorded.task == "t0"
    assert [
        each.task
        for each in open_trajectory_source("demo-1").read_matching(lambda task, reward: task != "t0" and reward > 0)
    ] == ["t1"]
    assert find_trajectory("demo-1/train-g000000-s00").recorded.verdict.status is EpisodeStatus.COMPLETED


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("train-g000001-s00", "write RUN/ID"),
        ("nowhere/x", "write RUN/ID"),
        ("{run}/train-g000001-s01", "did you mean 'train-g000001-s00'"),
    ],
)
def test_an_unknown_trajectory_name_is_refused_with_a_hint(run_dir: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        find_trajectory(name.format(run=run_dir))


def test_a_run_of_a_harness_and_a_run_without_a_tokenizer_are_refused(run_dir: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "harness", make_run_config("agent.harness=python3 /opt/agent.py"), [])
    write_evaluation_with_trajectory(tmp_path / "evaluated", make_run_config("agent.harness=python3 /opt/agent.py"))
    for folder in ("harness", "evaluated"):
        with pytest.raises(UserError, match="made by a harness"):
            open_trajectory_source(str(tmp_path / folder))
    for file in (run_dir / "model").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="no tokenizer to decode"):
        open_trajectory_source(str(run_dir))


def test_weights_that_a_run_removes_while_they_are_read_are_replaced_by_newer_ones(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_dir / "weights").mkdir()
    (run_dir / "model").rename(run_dir / "weights" / "v1")
    real = run_source.load_chat_format

    def load_late(folder: str, offered: Toolset, *, thinking: bool | None = None) -> ChatFormat:
        if folder.endswith("v1"):
            (run_dir / "weights" / "v1").rename(run_dir / "weights" / "v2")
        return real(folder, offered, thinking=thinking)

    monkeypatch.setattr(run_source, "load_chat_format", load_late)
    assert find_trajectory(f"{run_dir}/train-g000001-s00").recorded.task == "t1"


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    return write_evaluation_with_trajectory(tmp_path / "evaluations" / "eval-1", make_run_config("agent.kind=hermes"))


def test_an_attempt_is_found_by_evaluation_task_and_number(evaluation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(evaluation.parent.parent)
    for name in (f"{evaluation}/a/0", "eval-1/a/0", "evaluations/eval-1/a/0"):
        found = find_trajectory(name).recorded
        assert (found.name, [reply.text.rpartition("\n")[2] for reply in found.replies]) == (
            "eval-1/a/0",
            ["</tool_call>", "done"],
        )
    assert [(reply.calls_run, reply.exit_code) for reply in found.replies] == [(1, 0), (None, None)]
    assert [len(found.opening), len(found.messages)] == [2, 5]
    assert found.verdict is not None
    assert found.verdict.tests[0].name == "one"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("{out}/a/1", "did you mean 'a/0'"),
        ("{out}/b/0", "trajectories.jsonl has 1, each named TASK/ATTEMPT"),
        ("{out}/a/last", "'last' is not the number of an attempt"),
    ],
)
def test_a_missing_attempt_is_refused_with_the_existing_ones(evaluation: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        find_trajectory(name.format(out=evaluation))


def test_an_unfinished_line_is_ignored_and_a_foreign_line_is_named(evaluation: Path) -> None:
    file = evaluation / "trajectories.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"task": "b", "num')
    assert find_trajectory(f"{evaluation}/a/0").recorded.task == "a"
    file.write_bytes(whole + b'{"task": "b"}\n')
    with pytest.raises(UserError, match=r"trajectories\.jsonl:3 is not a trajectory of an evaluation"):
        find_trajectory(f"{evaluation}/a/0")
