"""If these fail, a step does not begin as Harbor's does, or grading it takes away what the next one needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from actors.rollout.sandbox_terminal import SandboxTerminal, hold_terminal
from actors.rollout.terminal import EpisodeGrade, TerminalLimits
from sandbox.errors import SandboxStartError
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalProvider
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_containers import TaskHealthcheck
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tools import SHELL_ONLY
from tests.support.tasks.cheats.graders import REWARD

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
LIMITS = TerminalLimits(acquire_s=60.0, command_s=20.0, grade_s=20.0, cleanup_s=20.0, observation_chars=1000)


def passes_if(condition: str) -> str:
    return f"#!/bin/bash\nif {condition}; then echo 1; else echo 0; fi > {REWARD}"


def stepped(*steps: TaskStep) -> Task:
    return Task("t", "do", steps=steps, reports=(REWARD,))


async def shell(terminal: SandboxTerminal, command: str) -> str:
    return (await terminal.call("shell_exec", {"command": command}, lambda _: None)).raw


async def play(pool: SandboxPool, task: Task, commands: Sequence[str]) -> tuple[list[str], EpisodeGrade]:
    """Run a command in each step and return their outputs, with the last grade."""
    said, grade = list[str](), EpisodeGrade((), 0.0, False, 0.0)
    opening = LocalProvider(pool).open(task, 60.0)
    async with hold_terminal(opening, task, LIMITS, SHELL_ONLY, on_slow_cleanup=lambda _: None) as terminal:
        for command in commands:
            said.append(await shell(terminal, command))
            grade = await terminal.grade("")
            if not grade.goes_on:
                break
    return said, grade


async def test_what_the_agent_leaves_is_there_in_the_next_step_and_the_tests_are_not(pool: SandboxPool):
    task = stepped(
        TaskStep("a", "do a", run_tests=passes_if("[ -e /tests/hidden ]"), tests={"hidden": b"1"}),
        TaskStep(
            "b",
            "do b",
            run_tests=passes_if("[ -e /app/b ]"),
            files={"given": b"given\n", "setup.sh": b"echo made > made"},
            healthcheck=TaskHealthcheck("[ -e /app/made ]"),
            grading=GradingLevel.SAME,
        ),
    )
    leaves = "cd /tmp; X=kept; (exec -a the-job sleep 1000) > /dev/null 2>&1 & touch /logs/agent/note"
    looks = "pwd; echo $X; cat given made; ls -A /tests /logs/agent; ps -e -o args | grep -c '^the-job'; touch b"
    said, grade = await play(pool, task, (leaves, looks))
    assert said[1].split() == ["/app", "kept", "given", "made", "/logs/agent:", "/tests:", "1"]
    assert (grade.all_passed, grade.score, grade.goes_on) == (True, 1.0, False)
    assert grade.step_rewards == {"a": 1.0, "b": 1.0}
    assert [test.name for test in grade.tests] == ["a: reward", "b: reward"]


async def test_a_step_that_the_agent_keeps_from_beginning_has_failed(pool: SandboxPool):
    setup = {"setup.sh": b"[ -e /app/needed ]"}
    task = stepped(
        TaskStep("a", "do a", run_tests=passes_if("true")),
        TaskStep("b", "do b", run_tests=passes_if("true"), files=setup, grading=GradingLevel.SAME),
    )
    _, grade = await play(pool, task, ("true", "never"))
    assert (grade.score, grade.step_rewards, grade.all_passed) == (0.5, {"a": 1.0, "b": 0.0}, False)
    with pytest.raises(SandboxStartError, match="setup exited with 1"):
        await play(pool, stepped(TaskStep("a", "do a", run_tests=passes_if("true"), files=setup)), ())
