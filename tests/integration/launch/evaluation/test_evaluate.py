"""If these fail, a score is not what was done in the sandboxes, or an evaluation that was broken off begins anew."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.data.demo.model import build_demo_model
from launch.evaluation.results.evaluation_folder import read_attempt_records
from launch.settings.data import ModelSettings
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USER
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.generated.generator import training_tasks
from tests.support.fakes.fake_chat import ChatErrorReply, Reply, Request, ToolCallReply, serve_fake_chat
from tests.support.sandbox.bash_agent import AGENT
from tests.support.tasks.task_files import write_tasks

pytestmark = [pytest.mark.docker]
TASKS = training_tasks(3, 3)


@pytest.fixture
def tasks(tmp_path: Path, docker_engine: SandboxHost) -> Path:
    write_tasks(TASKS, "terminal_bench", tmp_path / "tasks")
    return tmp_path / "tasks"


async def evaluate(*words: object) -> tuple[int, dict[str, Any]]:
    line = [
        sys.executable,
        "-m",
        "launch.evaluation.evaluate",
        "demo",
        *map(str, words),
        "--concurrency",
        "2",
        "--json",
    ]
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
    stdout, _ = await process.communicate()
    return process.returncode or 0, json.loads(stdout)


async def test_the_oracle_scores_1_and_doing_nothing_scores_0(tasks: Path, tmp_path: Path) -> None:
    for who, score in (("oracle", 1.0), ("noop", 0.0)):
        code, summary = await evaluate(f"--{who}", "--tasks", tasks, "--attempts", 1, "--output", tmp_path / who)
        assert (code, summary["pass_ratio"], summary["graded"]) == (0, score, len(TASKS))
        assert summary["pass_at_k"]["1"]["value"] == score
        for name in ("results.csv", "evaluated_tasks.csv", "summary.json", "report.html"):
            assert (tmp_path / who / name).stat().st_size > 0


def solution(request: Request) -> Reply:
    """Solve the first task, fail at the second and do nothing for the others."""
    if any(message["role"] == "assistant" for message in request["messages"]):
        return "done"
    text = "\n".join(message["content"] for message in request["messages"])
    if TASKS[0].instruction in text:
        return ToolCallReply(("shell_exec",), (json.dumps({"command": TASKS[0].solution}),))
    return ChatErrorReply(404, "no such route") if TASKS[1].instruction in text else "done"


@pytest.mark.slow
async def test_a_model_at_a_url_is_scored_and_refusals_by_its_server_do_not_count_as_failures(
    tasks: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    async with serve_fake_chat(solution) as chat:
        words = ("--model", chat.url, "--tasks", tasks, "--attempts", 2, "--output", out, "--save-trajectories")
        code, summary = await evaluate(*words)
        assert (code, summary["graded"], summary["pass_count"], summary["errors_by_stage"]["agent"]) == (
            EXIT_FAILED,
            4,
            2,
            2,
        )
        assert summary["tokens"]["completion"] == 7 * 6
        request_count = len(chat.received_requests)
        assert (await evaluate(*words))[1]["graded"] == 4
        assert len(chat.received_requests) == request_count
        chat.reply_to = lambda _: "done"
        code, summary = await evaluate(*words, "--retry-errors")
        assert (code, summary["graded"], summary["pass_count"]) == (0, 6, 2)
    saved = [json.loads(line) for line in (out / "trajectories.jsonl").read_text().splitlines()]
    assert sum(any(each["role"] == "assistant" for each in trajectory["messages"]) for trajectory in saved) == 6


@pytest.mark.slow
async def test_an_evaluation_keeps_to_one_of_the_models_at_a_url(tasks: Path, tmp_path: Path) -> None:
    """Nobody named it: it is the one that the server listed first when the evaluation began."""
    async with serve_fake_chat(lambda _: "done") as chat:
        words = ("--model", chat.url, "--tasks", tasks, "--output", tmp_path / "out", "--attempts")
        code, summary = await evaluate(*words, 1)
        assert (code, summary["model_type"], {each["model"] for each in chat.received_requests}) == (
            0,
            "tiny",
            {"tiny"},
        )
        chat.models = ("large", "tiny")
        code, summary = await evaluate(*words, 2)
        assert (code, summary["graded"], {each["model"] for each in chat.received_requests}) == (
            0,
            2 * len(TASKS),
            {"tiny"},
        )
        chat.models = ("large",)
        assert (await evaluate(*words, 3))[0] == EXIT_USER
        assert (await evaluate(*words, 3, "--model-name", "large"))[0] == EXIT_USER
        assert len(chat.received_requests) == 2 * len(TASKS)
    assert (await evaluate(*words, 2))[1]["model_type"] == "tiny", "what is done needs no server"


@pytest.mark.slow
async def test_a_harness_is_scored_with_a_model_at_a_url(tasks: Path, tmp_path: Path) -> None:
    """It is in a sandbox without a network, and never sees the endpoint's key."""
    secret, out = "sk-the-endpoints-own", tmp_path / "out"
    (tmp_path / "key").write_text(secret)
    async with serve_fake_chat(solution, key=secret) as chat:
        words = (
            "--model",
            chat.url,
            "--key-file",
            tmp_path / "key",
            "--tasks",
            tasks,
            "--attempts",
            1,
            "--output",
            out,
        )
        code, summary = await evaluate(*words, "--set", f"agent.harness={AGENT}", "--set", "agent.max_turns=4")
    by_task = {record.task: record for record in read_attempt_records(out).values()}
    solved, refused, idle = (by_task[task.id] for task in TASKS)
    assert (code, summary["pass_count"], summary["agent"]["agent"]) == (EXIT_FAILED, 1, "harness")
    assert solved.verdict is not None
    assert (solved.verdict.passed, solved.usage.turns, solved.usage.completion_tokens) == (True, 2, 14)
    assert refused.failure is not None
    assert "404" in refused.failure.message
    assert idle.verdict is not None
    assert not idle.verdict.passed


@pytest.mark.sglang
@pytest.mark.slow
@pytest.mark.parametrize("harness", ["", AGENT])
async def test_a_model_folder_is_served_and_scored_with_a_built_in_agent_and_with_a_harness(
    tasks: Path, tmp_path: Path, harness: str
) -> None:
    """Token by token: what was sampled is what the server says, at its log-probabilities."""
    model, out = tmp_path / "model", tmp_path / "out"
    build_demo_model(model, ModelSettings(layers=2, hidden=64, intermediate=128, heads=2, head_dim=32), 0)
    words = ("--model", model, "--tasks", tasks, "--attempts", 2, "--output", out, "--save-trajectories")
    limits = ("agent.max_turns=2", "agent.max_new_tokens=32", "engine.max_total_tokens=8192")
    keys = [word for key in (*limits, f"agent.harness={harness}") for word in ("--set", key)]
    code, summary = await evaluate(*words, *keys)
    assert (code, summary["graded"], summary["error_count"]) == (0, 2 * len(TASKS), 0)
    assert summary["model_platform"] == "sglang"
    trajectories = [json.loads(line) for line in (out / "trajectories.jsonl").read_text().splitlines()]
    assert len(trajectories) == 2 * len(TASKS)
    for trajectory in trajectories:
        assert trajectory["segments"]
        for segment in trajectory["segments"]:
            sampled = [each for each, mask in zip(segment["logprobs"], segment["loss_mask"], strict=True) if mask]
            assert sampled
            assert all(each < 0 for each in sampled)
    assert summary["tokens"]["completion"] == sum(
        sum(segment["loss_mask"]) for trajectory in trajectories for segment in trajectory["segments"]
    )
    assert (await evaluate(*words, *keys))[1]["graded"] == 2 * len(TASKS), "nothing is left to be served for"


@pytest.mark.slow
async def test_an_interrupted_evaluation_resumes_where_it_stopped(tasks: Path, tmp_path: Path) -> None:
    out, seen = tmp_path / "out", asyncio.Event()

    def say(request: Request) -> Reply:
        if len(chat.received_requests) > 1:
            chat.may_reply.clear()
            seen.set()
        return "done"

    async with serve_fake_chat(say) as chat:
        words = ["demo", "--model", chat.url, "--tasks", str(tasks), "--attempts", "1", "--output", str(out)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "launch.evaluation.evaluate", *words, "--concurrency", "1"
        )
        await seen.wait()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == EXIT_INTERRUPTED
        done = read_attempt_records(out)
        assert 0 < len(done) < len(TASKS)
        chat.may_reply.set()
        chat.reply_to = lambda _: "done"
        request_count = len(chat.received_requests)
        code, summary = await evaluate(*words[1:])
        assert (code, summary["complete"]) == (0, True)
        assert len(chat.received_requests) - request_count == len(TASKS) - len(done)
