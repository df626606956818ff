"""If these fail, a task of several steps is graded as if it had no tests where its steps are not played."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.terminal import TerminalLimits
from protocol.errors import UserError
from sandbox.http.task_codec import TaskRefused, encode_task
from sandbox.providers.interface import Sandbox
from sandbox.server.task_source import TaskSource
from sandbox.tasks.file_tree import write_tree
from sandbox.tasks.formats.harbor.writer import write_task
from sandbox.tasks.task import Task, TaskStep

TASK = Task(
    "t", "do", steps=(TaskStep("a", "do", tests={"x": b"\xff"}, run_tests="true", min_rewards={"reward": 1.0}),)
)


def test_a_pool_server_names_a_task_of_its_own_and_takes_one_whose_client_begins_the_steps(tmp_path: Path) -> None:
    write_tree(write_task(TASK), tmp_path / "t")
    with pytest.raises(TaskRefused, match="task t has steps"):
        TaskSource(tmp_path).resolve({"task_path": "t"})
    assert TaskSource(None).resolve({"task": encode_task(TASK)}) == TASK


async def test_a_sandbox_of_another_provider_names_the_task() -> None:
    limits = TerminalLimits(acquire_s=1.0, command_s=1.0, grade_s=1.0, cleanup_s=1.0, observation_chars=100)
    with pytest.raises(UserError, match="task t has steps"):
        await SandboxTerminal(cast("Sandbox", object()), TASK, limits).begin()
