"""If these fail, an agent starts in a container that is not ready, or never starts in one that is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from sandbox.errors import TaskFault
from sandbox.session.shell import CommandResult
from sandbox.session.task_setup import set_up_task
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskHealthcheck


class FakeNewSandbox:
    def __init__(self, *codes: int) -> None:
        self._codes = [*codes]
        self.done: list[str] = []
        self.output = "said"

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        self.done += [f"{mode:o} {path}" for path in contents]

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        self.done.append(f"{command} {timeout_s:g}")
        return CommandResult(self.output, 0, self._codes.pop(0), False, 1.0, False)

    async def start_image(self, task: Task) -> None:
        self.done.append("start the image")

    async def become_agent(self) -> None:
        self.done.append("become the agent")


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waits


async def test_files_are_written_before_the_script_and_the_script_runs_before_the_health_check(
    slept: list[float],
) -> None:
    task = Task("a", "", files={"/a": b""}, setup="make", reports=("/logs/verifier/reward.txt",))
    sandbox = FakeNewSandbox(0, 1, 0)
    await set_up_task(sandbox, _checked(task), 7)
    folders = ["777 /logs/agent/", "777 /logs/artifacts/", "777 /logs/verifier/"]
    checks = ["(eval 'curl a') 3"] * 2
    assert sandbox.done == [*folders, "644 /a", "(eval make) 7", "start the image", *checks, "become the agent"]
    assert slept == [2]


async def test_failures_in_the_start_period_do_not_count(slept: list[float]) -> None:
    await set_up_task(FakeNewSandbox(1, 1, 1, 1, 0), _checked(Task("a", ""), start_period_s=1e9), 7)
    assert slept == [0.5] * 4


async def test_a_container_that_stays_unhealthy_is_the_task_s_fault() -> None:
    with pytest.raises(TaskFault, match="health check fails: exit code 1, 'said'"):
        await set_up_task(FakeNewSandbox(1, 1, 0), _checked(Task("a", "")), 7)


async def test_a_health_check_that_says_nothing_is_told_by_its_exit() -> None:
    sandbox = FakeNewSandbox(7, 7)
    sandbox.output = ""
    with pytest.raises(TaskFault, match="health check fails: exit code 7, no output"):
        await set_up_task(sandbox, _checked(Task("a", "")), 7)


def _checked(task: Task, start_period_s: float = 0.0) -> Task:
    check = TaskHealthcheck("curl a", 2, 3, start_period_s, 0.5, 2)
    return replace(task, healthcheck=check)
