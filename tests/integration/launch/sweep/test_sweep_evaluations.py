"""If these fail, a sweep of evaluations says something else than one by one would."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.generated.generator import training_tasks
from tests.support.fakes.fake_chat import Reply, Request, serve_fake_chat
from tests.support.tasks.task_files import write_tasks

pytestmark = [pytest.mark.docker]
TASKS = training_tasks(3, 2)


@pytest.fixture
def tasks(tmp_path: Path, docker_engine: SandboxHost) -> Path:
    write_tasks(TASKS, "terminal_bench", tmp_path / "tasks")
    return tmp_path / "tasks"


async def swept(out: Path, *words: object) -> tuple[int, dict[str, Any]]:
    line = [
        sys.executable,
        "-m",
        "launch.sweep",
        "--evaluate",
        "demo",
        *map(str, words),
        "--output",
        str(out),
        "--json",
    ]
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
    stdout, _ = await process.communicate()
    return process.returncode or 0, json.loads(stdout)


def values(summary: dict[str, Any], name: str) -> dict[str, float]:
    (point,) = [each for each in summary["points"] if each["name"] == name]
    return point["values"]


@pytest.mark.slow
async def test_models_at_urls_are_compared_and_an_unreachable_one_does_not_affect_the_others(
    tasks: Path, tmp_path: Path
) -> None:
    def say(request: Request) -> Reply:
        return "done"

    common = ("--set", f"tasks={tasks}", "--set", "attempts=1", "--set", "concurrency=2")
    async with serve_fake_chat(say) as chat:
        nobody = "http://127.0.0.1:9/v1"
        axes = ("--axis", f"model={chat.url},{nobody}", "--axis", "temperature=0.5,1.0")
        code, summary = await swept(tmp_path / "out", *axes, *common)
        assert code == EXIT_FAILED
        states = [each["state"] for each in summary["points"]]
        assert states == ["ended", "ended", "failed", "failed"]
        assert values(summary, summary["points"][0]["name"])["graded"] == len(TASKS)
        request_count = len(chat.received_requests)
        await swept(tmp_path / "out", *axes, *common)
        assert len(chat.received_requests) == request_count, "what has ended was asked again"


@pytest.mark.slow
async def test_the_oracle_scores_1_at_every_point(tasks: Path, tmp_path: Path) -> None:
    common = ("--set", "oracle=true", "--set", f"tasks={tasks}", "--set", "attempts=1", "--set", "concurrency=2")
    code, summary = await swept(tmp_path / "out", "--axis", "sandbox.command_timeout_s=10.0,20.0", *common)
    assert code == EXIT_OK
    assert [each["values"]["pass_at_1"] for each in summary["points"]] == [1.0, 1.0]
    assert len((tmp_path / "out" / "sweep.csv").read_text().splitlines()) == 3
