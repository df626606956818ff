"""If these fail, a model without a browser is evaluated on tasks of the web, or their oracle has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.agents.settings import AgentKind, ToolsetKind
from launch.evaluation.evaluation_options import EvaluateArguments
from launch.evaluation.standalone.evaluation import StandaloneEvaluation, build_evaluation
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from sandbox.tasks.formats.liveweb.generator import make_web_row
from tests.support.commands import call_command


def evaluation(tasks: Path, *words: str) -> StandaloneEvaluation:
    return build_evaluation(parse_arguments(EvaluateArguments, [*words, "--tasks", str(tasks)], "evaluate"))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(json.dumps(make_web_row("shop-buy", 0)))
    return tmp_path / "rows.jsonl"


@pytest.mark.parametrize("solver", ["--oracle", "--noop"])
def test_the_oracle_has_a_browser_whatever_the_recipe(tasks: Path, solver: str) -> None:
    agent = evaluation(tasks, solver).config.agent
    assert (agent.toolset, agent.kind) == (ToolsetKind.BROWSER, AgentKind.JSON)


def test_a_model_has_to_be_given_one(tasks: Path) -> None:
    model = ("--model", "http://127.0.0.1:1", "--model-name", "m")
    with pytest.raises(UserError, match=r"shop-buy-0 begins on a page of the web: .* --set agent\.toolset=browser"):
        evaluation(tasks, *model)
    assert evaluation(tasks, "art_liveweb", *model).config.agent.toolset is ToolsetKind.BROWSER


def test_a_task_of_the_live_web_without_its_network_is_told_before_anything_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    row = {"task_id": 7, "start_url": "https://example.org/", "question": "?", "answer": {"number": 1}}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    words = ("--noop", "--tasks", str(file), "--output", str(tmp_path / "out"), "--dry-run")
    warning = "warning: 1 of 1 task asks for more network than it gets, which is none: --set sandbox.network=task"
    done = call_command(capfd, "launch.evaluation.evaluate", *words)
    assert (done.returncode, done.stderr.startswith(warning)) == (0, True), done.stderr
    assert call_command(capfd, "launch.evaluation.evaluate", *words, "--set", "sandbox.network=task").stderr == ""
