"""If these fail, a score is not what was done in the sandboxes, or an evaluation that was broken off begins anew."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.server import Gateway
from launch.bench.tiny_recipes import build_tiny_model
from launch.data.conversations import read_conversations
from launch.evaluation.comparison.compared_evaluation import open_evaluations
from launch.evaluation.comparison.evaluation_comparison import compare_evaluations
from launch.evaluation.results.evaluation_folder import read_attempt_records
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USER
from sandbox.host_record import SandboxHost
from sandbox.tasks.file_tree import write_tree
from sandbox.tasks.formats.generated.generator import training_tasks
from sandbox.tasks.formats.harbor.writer import write_task
from sandbox.tasks.task import Task, TaskStep
from tests.support.actors.episodes import episode_context
from tests.support.actors.published_harnesses import DONE, SETTINGS, FakeTaskPolicy, ToolCall, install_or_skip
from tests.support.fakes.fake_chat import (
    ChatErrorReply,
    Reply,
    Request,
    ToolCallReply,
    scripted_replies,
    serve_fake_chat,
)
from tests.support.sandbox.bash_agent import AGENT
from tests.support.tasks.task_files import write_tasks

pytestmark = [pytest.mark.docker]
TASKS = training_tasks(3, 3)


@pytest.fixture
def tasks(tmp_path: Path, docker_engine: SandboxHost) -> Path:
    write_tasks(TASKS, "terminal_bench", tmp_path / "tasks")
    return tmp_path / "tasks"


async def evaluate(*words: object, recipe: str = "demo") -> tuple[int, dict[str, Any]]:
    line = [
        sys.executable,
        "-m",
        "launch.evaluation.evaluate",
        recipe,
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
@pytest.mark.parametrize(
    ("reply", "code", "graded", "context", "said"),
    [
        (
            ChatErrorReply(400, "context_length_exceeded: 512 tokens"),
            *(EXIT_FAILED, 0, 4096),
            "the endpoint refuses the first prompt (400: context_length_exceeded: 512 tokens)",
        ),
        ("done", EXIT_FAILED, 0, 64, "leaves no room for a reply in agent.context_tokens = 64"),
        ("```bash\nls\n```", 0, 1, 4096, "1 of 1 attempts failed without any tool call"),
    ],
    ids=["endpoint's context", "recipe's context", "no tool call"],
)
async def test_a_model_that_cannot_act_does_not_score_0_in_silence(
    tasks: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    reply: Reply,
    code: int,
    graded: int,
    context: int,
    said: str,
) -> None:
    out = tmp_path / "out"
    async with serve_fake_chat(scripted_replies(reply)) as chat:
        words = ("--model", chat.url, "--tasks", tasks, "--limit", 1, "--attempts", 1, "--output", out)
        limits = ("--set", f"agent.context_tokens={context}", "--set", "agent.max_new_tokens=32")
        ended, summary = await evaluate(*words, *limits, recipe="instruct")
    assert (ended, summary["graded"]) == (code, graded)
    assert said in capfd.readouterr().err
    assert said in unescape((out / "report.html").read_text())


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


@pytest.mark.slow
async def test_a_harness_plays_each_step_of_a_task_with_a_model_at_a_url(
    tmp_path: Path, docker_engine: SandboxHost
) -> None:
    """It begins anew in each; what it said is one attempt's."""
    tests = "test -e /app/{name} && echo 1 > /logs/verifier/reward.txt\n"
    steps = tuple(
        TaskStep(name, f"make {name}", run_tests=f"#!/bin/sh\n{tests.format(name=name)}") for name in ("one", "two")
    )
    task = Task("both", "make both", image=docker_engine.base_image, agent_timeout_s=60.0, steps=steps)
    write_tree(write_task(task), tmp_path / "tasks" / "both")

    def reply(request: Request) -> Reply:
        if len(request["messages"]) > 1:
            return "done"
        name = request["messages"][0]["content"].removeprefix("make ")
        return ToolCallReply(("shell",), (json.dumps({"command": f"touch /app/{name}"}),))

    out = tmp_path / "out"
    async with serve_fake_chat(reply) as chat:
        words = ("--model", chat.url, "--tasks", tmp_path / "tasks", "--attempts", 1, "--output", out)
        agent = ("--set", f"agent.harness={AGENT}", "--set", "agent.max_turns=4", "--save-trajectories")
        code, summary = await evaluate(*words, *agent)
    assert code == 0, summary
    (record,) = read_attempt_records(out).values()
    assert record.usage.turns == 4
    assert record.verdict is not None
    assert (record.verdict.parts["step_one"], record.verdict.parts["step_two"]) == (1.0, 1.0)
    saved = json.loads((out / "trajectories.jsonl").read_text())
    assert [each["content"] for each in saved["messages"] if each["role"] == "user"] == ["make one", "make two"]


_LIMITS = ("agent.context_tokens", "engine.max_total_tokens", "learner.micro_batch_tokens")
ROOMY = [
    *(word for key in _LIMITS for word in ("--set", f"{key}=80000")),
    *("--set", "buffer.max_trajectory_bytes=2000000"),
]
"""Limits for a policy whose tokens are characters."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("claude-code", ToolCall("Bash", {"command": TASKS[0].solution, "description": "Solve it"})),
        ("codex", ToolCall("exec_command", {"cmd": TASKS[0].solution})),
        ("opencode", ToolCall("bash", {"command": TASKS[0].solution, "description": "Solve it"})),
    ],
    ids=["messages", "responses", "chat"],
)
async def test_a_published_harness_is_scored_by_its_work_with_a_model_at_a_url_that_speaks_its_api(
    tmp_path: Path, docker_engine: SandboxHost, name: str, call: ToolCall
) -> None:
    """opencode also asks for a title, which is neither a turn nor an answer."""
    await asyncio.to_thread(install_or_skip, docker_engine, name)
    tasks = tmp_path / "tasks"
    write_tasks([replace(TASKS[0], agent_timeout_s=600.0)], "terminal_bench", tasks)
    policy, out = FakeTaskPolicy(call), tmp_path / "out"
    async with Gateway(policy.tokenizer, policy.generate, model="tiny") as gateway:
        with gateway.open_session(SETTINGS, episode_context(SETTINGS, TASKS[0]).sampling) as session:
            (tmp_path / "key").write_text(gateway.api_key(session))
            where = ("--model", f"{gateway.url}/v1", "--key-file", tmp_path / "key", "--agent", name)
            what = ("--tasks", tasks, "--attempts", 1, "--output", out)
            code, summary = await evaluate(*where, *what, *ROOMY, "--save-trajectories")
    assert (code, summary["pass_count"]) == (0, 1), summary
    (record,) = read_attempt_records(out).values()
    assert (record.usage.turns, record.usage.tool_calls) == (2, 1)
    (saved,) = map(json.loads, (out / "trajectories.jsonl").read_text().splitlines())
    assert saved["messages"][-1]["content"] == DONE
    assert len(policy.prompts) == (3 if name == "opencode" else 2)


@pytest.mark.sglang
@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [(), ("--set", f"agent.harness={AGENT}"), ("--agent", "pi", "--set", "agent.context_tokens=6144")],
    ids=["built in", "a command", "published"],
)
async def test_a_model_folder_is_served_and_scored_with_a_built_in_agent_and_with_a_harness(
    tasks: Path, tmp_path: Path, agent: tuple[str, ...], docker_engine: SandboxHost
) -> None:
    """Token by token: what was sampled is what the server says, at its log-probabilities."""
    model, out = tmp_path / "model", tmp_path / "out"
    build_tiny_model(model)
    if "pi" in agent:
        await asyncio.to_thread(install_or_skip, docker_engine, "pi")
    words = ("--model", model, "--tasks", tasks, "--attempts", 2, "--output", out, "--save-trajectories")
    limits = ("agent.max_turns=2", "agent.max_new_tokens=32", "engine.max_total_tokens=8192")
    keys = [*agent, *(word for key in limits for word in ("--set", key))]
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


ART = "art_terminal"
FIND_AND_MEND = scripted_replies(
    "THOUGHT: look\n```bash\ngrep -n break pagetext/patterns.py\n```",
    "THOUGHT: it must go on\n```bash\nsed -i '/^ *break$/d' pagetext/patterns.py\n```",
    "THOUGHT: done\n```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```",
)


@pytest.mark.slow
async def test_attempts_at_bugs_are_compared_and_become_samples_to_train_on(
    tmp_path: Path, docker_engine: SandboxHost
) -> None:
    """An agent mends one of two bugs: tests are counted, and what it said and changed is data again."""
    words = ("--tasks", "longshore-swe", "--task-ids", "11,12", "--attempts", 1)
    async with serve_fake_chat(FIND_AND_MEND) as chat:
        out = tmp_path / "mended"
        code, summary = await evaluate("--model", chat.url, *words, "--output", out, "--save-trajectories", recipe=ART)
    assert (code, summary["graded"], summary["pass_count"]) == (0, 2, 1)
    samples = {
        sample["task_id"]: sample for sample in map(json.loads, (out / "samples.jsonl").read_text().splitlines())
    }
    solved, failed = samples[11], samples[12]
    assert (solved["score"], solved["extra"]["all_result"], solved["extra"]["missing_tests"]) == (1.0, "61/61", [])
    assert (failed["score"], failed["extra"]["all_result"], failed["extra"]["target_result"]) == (0.0, "60/61", "0/1")
    assert "-                break\n" in solved["extra"]["fix_patch"]
    assert (solved["model"], solved["extra"]["model_calls"]) == ("tiny", 3)
    verdicts = {record.task: record.verdict for record in read_attempt_records(out).values() if record.verdict}
    outcomes = {task: each.reward - each.parts["process"] for task, each in verdicts.items()}
    assert outcomes == pytest.approx({"swe-synth-11": 1.0, "swe-synth-12": 0.5 * 60 / 61})
    assert [each.score for each in read_conversations(out / "samples.jsonl")].count(1.0) == 1
    for who, score in (("oracle", 1.0), ("noop", 0.0)):
        code, summary = await evaluate(f"--{who}", *words, "--output", tmp_path / who, recipe=ART)
        assert (code, summary["pass_ratio"]) == (0, score)
    names = [str(tmp_path / name) for name in ("noop", "mended", "oracle")]
    comparison = compare_evaluations(open_evaluations(names))
    assert [each.paired.at_k[1].difference for each in comparison.others] == [0.5, 1.0]
