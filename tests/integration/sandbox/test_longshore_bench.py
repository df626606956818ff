"""A score in longshore-bench means something only while each of its tasks tells right from almost right: in real
containers the oracle scores 1, twice; nothing done scores 0 in every test; near misses and cheats less than 1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grader import Isolation, grade
from sandbox.pool import SandboxPool
from sandbox.tasks.datasets import BUILT_IN, load_label
from sandbox.tasks.prove import Verdict, pool_ground, prove
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
TASKS = load_label(BUILT_IN, "longshore-bench").tasks


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.family}-{task.id}")
async def test_right_scores_one_and_almost_right_does_not(pool: SandboxPool, task: Task):
    again = replace(task, id=f"{task.id}-again", foils={})
    first, second = await prove([task, again], pool_ground(pool), 2)
    assert first.verdict is second.verdict is Verdict.PROVED, (first, second)
    assert (first.oracle, first.noop) == (second.oracle, second.noop) == (1.0, 0.0)
    assert set(first.foils) == {"near-1", "near-2", "cheat"}
    assert max(first.foils.values()) < 1.0


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.family}-{task.id}")
async def test_nothing_done_fails_each_test_by_its_name(pool: SandboxPool, task: Task):
    async with pool.acquire(task) as session:
        idle = await grade(session, task)
    assert {test.name: test.passed for test in idle.tests} == dict.fromkeys(task.weights, False), idle.log
    assert idle.isolation is Isolation.KIT
