"""If this fails, GRPO-TCR's validation is not what its model card shows: a result for each data source of its rows, of
the model that was named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import orjson
import pytest

from launch.bench.recipes.answer_rows import attempt_row, grpo_tcr_rows
from launch.bench.recipes.attempts import AnswerAttempt
from protocol.cli.exit_codes import EXIT_USER
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task import Task
from tests.support.commands import JsonCommandResult, run_json
from tests.support.fakes.fake_chat import FakeChat, Reply, Request, ToolCallReply, serve_fake_chat

pytestmark = [pytest.mark.docker, pytest.mark.slow]
WRONG = {"omni_math", "taco_code"}


class ScriptedSolver:
    """Runs Python and answers, wrongly for two of the sources."""

    def __init__(self, tasks: tuple[Task, ...]) -> None:
        self._tasks = tasks

    def reply(self, request: Request) -> Reply:
        text = "\n".join(message["content"] or "" for message in request["messages"] if message["role"] == "user")
        (task,) = [each for each in self._tasks if each.instruction in text]
        attempt = attempt_row(task)[task.family in WRONG]
        assert isinstance(attempt, AnswerAttempt)
        if any(message["role"] == "tool" for message in request["messages"]):
            return attempt.answer
        return ToolCallReply(("code_interpreter",), (json.dumps({"code": attempt.code}),))


async def test_a_validation_has_a_result_for_each_data_source(tmp_path: Path, docker_engine: SandboxHost) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in grpo_tcr_rows()[:5]))
    (tmp_path / "datasets.toml").write_text('[open_agentrl_grpo_2k]\npath = "rows.jsonl"\n')
    async with serve_fake_chat(ScriptedSolver(load_tasks(rows).tasks).reply) as chat:
        chat.models = ("base", "sft", "grpo")
        words = ("--tasks", "open_agentrl_grpo_2k", "--datasets", tmp_path / "datasets.toml")
        done = await evaluate(chat, "grpo", tmp_path / "out", *words)
        assert done.exit_code == 0, done.stderr
        assert {each["model"] for each in chat.received_requests} == {"grpo"}
        assert done.output["families"] == {
            source: {"tasks": 1, "graded": 1, "pass_ratio": right, "tests_passed": tests, "reward": reward}
            for source, right, tests, reward in (
                ("deepscaler", 1.0, 1.0, 1.0),
                ("leetcode_code", 1.0, 1.0, 1.0),
                ("numina_math", 1.0, 1.0, 1.0),
                ("omni_math", 0.0, 0.0, -0.9),
                ("taco_code", 0.0, 0.5, -0.9),
            )
        }
        page = (tmp_path / "out/report.html").read_text()
        assert all(f"<td>{source}</td>" in page for source in done.output["families"])
        other = await evaluate(chat, "gpro", tmp_path / "other", *words)
        assert other.exit_code == EXIT_USER
        assert "has no model 'gpro': it has base, sft, grpo; did you mean 'grpo'?" in other.output["error"]


async def evaluate(chat: FakeChat, model: str, output: Path, *words: object) -> JsonCommandResult:
    named = ("--model", chat.url, "--model-name", model, "--output", output, "--attempts", 1, "--concurrency", 2)
    return await asyncio.to_thread(run_json, "launch.evaluation.evaluate", "grpo_tcr_qwen3_4b", *named, *words)
