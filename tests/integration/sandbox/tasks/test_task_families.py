"""If these fail, a family's oracle does not score 1 in real containers, or doing nothing or a usual mistake scores."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES
from sandbox.tasks.formats.generated.generator import make_task
from tests.support.tasks.task_files import solution_command, wrong_commands

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 30.0


async def test_every_family_passes_its_solution_and_fails_mistakes_and_no_work(pool: SandboxPool):
    wrong: list[str] = []
    four = asyncio.Semaphore(4)

    async def one(family: str) -> None:
        task = make_task(family, 2, TaskSplit.HELD_OUT)
        async with four:
            async with pool.acquire(task) as session:
                untouched = await grade_sandbox(session, task)
                await session.run(solution_command(task), S)
                solved = await grade_sandbox(session, task)
            async with pool.acquire(task) as session:
                await session.run(wrong_commands(task)[0], S)
                mistaken = await grade_sandbox(session, task)
        if not solved.all_passed or untouched.all_passed or mistaken.all_passed:
            wrong.append(f"{family}: {solved.log} {untouched.log} {mistaken.log}")
        assert solved.isolation is Isolation.TOOLCHAIN
        assert tuple(test.name for test in untouched.tests) == task.expected_tests

    async with asyncio.TaskGroup() as group:
        for family in FAMILIES:
            group.create_task(one(family))
    assert not wrong
