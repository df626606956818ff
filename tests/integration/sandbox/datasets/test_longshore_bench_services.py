"""The same proof for the tasks whose tests start servers and wait for them, which take as long as all others
together."""

from __future__ import annotations

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from tests.support.runs.bench_proofs import (
    TASKS,
    assert_scores_tell_solution_from_foils,
    assert_untouched_container_fails_every_test,
    task_test_id,
)

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
every_task = pytest.mark.parametrize("task", [task for task in TASKS if task.family == "services"], ids=task_test_id)


@every_task
async def test_the_solution_scores_one_and_near_misses_do_not(pool: SandboxPool, task: Task):
    await assert_scores_tell_solution_from_foils(pool, task)


@every_task
async def test_an_untouched_container_fails_every_named_test(pool: SandboxPool, task: Task):
    await assert_untouched_container_fails_every_test(pool, task)
