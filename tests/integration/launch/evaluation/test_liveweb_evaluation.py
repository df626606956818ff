"""If these fail, an evaluation of tasks of the web scores something else than what a browser did on their sites."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.data.conversations import read_conversations
from protocol.run_directory.page_pictures import list_pictures
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.liveweb.generator import generate_web_tasks
from sandbox.tasks.formats.liveweb.rows import oracle_actions
from tests.support.sandbox.browsers import install_browser_or_skip

pytestmark = [pytest.mark.docker, pytest.mark.slow]
CHOSEN = ("shop-buy-0", "wiki-correct-mayor-0", "dashboard-resolve-0", "dashboard-large-machines-0")
"""One task for each site, and both kinds of check."""


async def evaluate(*words: object) -> tuple[int, dict[str, Any]]:
    line = ["-m", "launch.evaluation.evaluate", *map(str, words), "--concurrency", "2", "--attempts", "1", "--json"]
    process = await asyncio.create_subprocess_exec(sys.executable, *line, stdout=asyncio.subprocess.PIPE)
    stdout, _ = await process.communicate()
    return process.returncode or 0, json.loads(stdout)


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_the_oracle_of_the_web_scores_1_in_a_browser_and_doing_nothing_0(
    docker_engine: SandboxHost, tmp_path: Path
) -> None:
    install_browser_or_skip(docker_engine)
    chosen = ("--tasks", "longshore-web", "--task-ids", ",".join(CHOSEN))
    for who, score in (("oracle", 1.0), ("noop", 0.0)):
        given = (f"--{who}", *chosen, "--save-trajectories", "--output", tmp_path / who)
        code, summary = await evaluate(*given)
        assert (code, summary["pass_ratio"], summary["graded"]) == (0, score, len(CHOSEN))
    tasks = {task.id: task for task in generate_web_tasks(0, 18, 0)}
    samples = {each["task_id"]: each for each in read_lines(tmp_path / "oracle/samples.jsonl")}
    assert set(samples) == set(CHOSEN)
    for name, sample in samples.items():
        actions = [step["action"] for step in sample["trajectory"]]
        assert (sample["score"], actions) == (1.0, oracle_actions(tasks[name]))
        (pictures,) = (tmp_path / "oracle/pictures").glob(f"{name}*.jpegs")
        assert len(list_pictures(pictures)) == len(actions), "the first page, and each action but the last"
    assert len(list(read_conversations(tmp_path / "oracle/samples.jsonl"))) == len(CHOSEN)


async def test_a_page_that_does_not_answer_is_a_failed_sandbox_and_no_reward(
    docker_engine: SandboxHost, tmp_path: Path
) -> None:
    install_browser_or_skip(docker_engine)
    row: dict[str, Any] = {
        "task_id": 1,
        "start_url": "https://nobody.invalid/",
        "question": "What does it say?",
        "answer": {"exact": "nothing"},
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    code, summary = await evaluate("--noop", "--tasks", tmp_path / "rows.jsonl", "--output", tmp_path / "out")
    (attempt,) = read_lines(tmp_path / "out/attempts.jsonl")
    assert (summary["graded"], attempt["verdict"]) == (0, None)
    assert "https://nobody.invalid/" in attempt["failure"]["message"]
    assert code != 0
