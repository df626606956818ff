"""If these fail, a flaky task is taken for a sound one, or pages and files show what did not happen in a sandbox.

Real sandboxes, a scripted model at a URL.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.run_directory.recording_reader import read_recording
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task import Task
from tests.support.fakes.fake_chat import Reply, Request, ToolCallReply, serve_fake_chat

pytestmark = [pytest.mark.docker, pytest.mark.slow]
_TESTS = """#!/bin/sh
echo "short test summary info"
if [ -f /app/note.txt ]; then echo "PASSED note"; else echo "FAILED note"; fi
"""
_RANDOM = "cat /proc/sys/kernel/random/uuid"


def task(name: str) -> Task:
    return Task(
        id=name,
        instruction=f"Write /app/note.txt ({name}).",
        run_tests=_TESTS,
        expected_tests=("note",),
        solution="echo 1 > note.txt\n",
        workdir="/app",
        agent_timeout_s=30.0,
        test_timeout_s=20.0,
    )


def say(request: Request) -> Reply:
    """Looks at something, and at something that is never the same; then it writes, unless it is told to be lazy."""
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    text = "\n".join(message["content"] or "" for message in request["messages"])
    commands = ["pwd; false", _RANDOM if "random" in text else "ls", "true" if "lazy" in text else "echo 1 > note.txt"]
    return (
        ToolCallReply(("shell_exec",), (json.dumps({"command": commands[turn]}),)) if turn < len(commands) else "done"
    )


async def command(module: str, *words: object) -> tuple[int, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *map(str, words), "--json", stdout=asyncio.subprocess.PIPE
    )
    stdout, _ = await process.communicate()
    return process.returncode or 0, json.loads(stdout)


@pytest.fixture
def tasks(tmp_path: Path, docker_engine: SandboxHost) -> Path:
    for name in ("sound", "random", "lazy"):
        write_task(task(name), tmp_path / "tasks")
    return tmp_path / "tasks"


async def evaluated(tasks: Path, out: Path) -> Path:
    async with serve_fake_chat(say) as chat:
        words = ("demo", "--model", chat.url, "--tasks", tasks, "--attempts", 1, "--output", out)
        code, output = await command("launch.evaluation.evaluate", *words, "--save-trajectories", "--concurrency", 2)
    assert (code, output["graded"], output["pass_count"]) == (EXIT_OK, 3, 2)
    return out


async def test_a_replay_repeats_the_commands_of_an_attempt_and_grades_it_again(tasks: Path, tmp_path: Path) -> None:
    out = await evaluated(tasks, tmp_path / "out")

    code, output = await command("launch.replay", f"{out}/sound/0", "--times", 2, "--concurrency", 2)
    assert (code, output["same"], output["agree"], output["task_changed"]) == (EXIT_OK, True, 2, False)
    assert [(each["observations"], each["different"]) for each in output["replays"]] == [(3, 0), (3, 0)]
    assert output["recorded"]["tests"] == [{"name": "note", "passed": True, "weight": 1.0}]

    code, output = await command("launch.replay", f"{out}/random/0")
    (again,) = output["replays"]
    assert (code, again["same_verdict"], again["different"]) == (EXIT_OK, True, 1)
    assert again["differences"][0]["commands"] == [_RANDOM]
    assert again["differences"][0]["recorded"] != again["differences"][0]["replayed"]

    code, output = await command("launch.replay", f"{out}/lazy/0")
    assert (code, output["recorded"]["passed"], output["same"]) == (EXIT_OK, False, True)


async def test_a_replay_blames_the_tests_when_observations_agree_and_verdicts_differ(
    tasks: Path, tmp_path: Path
) -> None:
    out = await evaluated(tasks, tmp_path / "out")
    script = tasks / "sound" / "run-tests.sh"
    script.write_text(script.read_text().replace("note.txt", "other.txt"))
    code, output = await command("launch.replay", f"{out}/sound/0", "--times", 2)
    assert (code, output["agree"], output["flaky"]) == (EXIT_FAILED, 0, False)
    assert output["explanation"] == "the agent observed the same but the verdict differs: look at the tests"
    assert output["replays"][0]["changed_tests"] == ["note: passed recorded, failed replayed"]


async def test_terminals_are_recorded_and_compared(tasks: Path, tmp_path: Path) -> None:
    model = await evaluated(tasks, tmp_path / "model")
    shown = "".join(text for _, text in read_recording(model / "terminals" / "sound.0.cast").events)
    for part in ("pwd; false", "/app", "echo 1 > note.txt", "1 of 1 hidden tests passed"):
        assert part in shown
    oracle = tmp_path / "oracle"
    await command(
        "launch.evaluation.evaluate", "demo", "--oracle", "--tasks", tasks, "--attempts", 1, "--output", oracle
    )
    code, output = await command("launch.evaluation.compare", model, oracle, "--output", tmp_path / "page.html")
    (other,) = output["others"]
    assert (code, [each["task"] for each in other["changed"]]) == (EXIT_OK, ["lazy"])
    assert other["pass_at_k"]["1"]["difference"] == pytest.approx(1 / 3)
    page = (tmp_path / "page.html").read_text()
    assert page.count('class="pair"') == 1
    assert "model, attempt 0" in page


async def test_an_evaluation_without_recordings_has_none(tasks: Path, tmp_path: Path) -> None:
    words = ("demo", "--noop", "--tasks", tasks, "--attempts", 1, "--output", tmp_path / "out", "--no-record")
    assert (await command("launch.evaluation.evaluate", *words))[0] == EXIT_OK
    assert not (tmp_path / "out" / "terminals").exists()


async def test_conversations_of_real_attempts_are_exported(tasks: Path, tmp_path: Path) -> None:
    out = await evaluated(tasks, tmp_path / "out")
    file = tmp_path / "good.jsonl"
    code, output = await command("launch.export", out, "--passed", "--output", file)
    assert (code, output["trajectories"], output["excluded"]) == (EXIT_OK, 2, {"failed": 1})
    for line in map(json.loads, file.read_text().splitlines()):
        observations = [each["value"] for each in line["conversations"] if each["from"] == "observation"]
        assert len(observations) == 3
        assert "/app" in observations[0]
