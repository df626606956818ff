"""Proofs of each task of longshore-bench in real containers, in two test files, so that CI's batches are even."""

from __future__ import annotations

from dataclasses import replace

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset
from sandbox.tasks.task import Task
from sandbox.validation.proofs import ProofVerdict, pool_proof_environment, prove_tasks

TASKS = load_labelled_dataset(BUILT_IN_CATALOG, "longshore-bench").tasks


def task_test_id(task: Task) -> str:
    return f"{task.family}-{task.id}"


async def assert_scores_tell_solution_from_foils(pool: SandboxPool, task: Task) -> None:
    """The oracle scores 1, twice; nothing done 0; foils less than 1."""
    again = replace(task, id=f"{task.id}-again", foils={})
    first, second = await prove_tasks([task, again], pool_proof_environment(pool), 2)
    assert first.verdict is second.verdict is ProofVerdict.PROVED, (first, second)
    assert (first.oracle, first.noop) == (second.oracle, second.noop) == (1.0, 0.0)
    assert set(first.foils) == {"near-1", "near-2", "cheat"}
    assert max(first.foils.values()) < 1.0


async def assert_untouched_container_fails_every_test(pool: SandboxPool, task: Task) -> None:
    """Grade an untouched container with the toolchain's own programs."""
    async with pool.acquire(task) as session:
        idle = await grade_sandbox(session, task)
    assert {test.name: test.passed for test in idle.tests} == dict.fromkeys(task.weights, False), idle.log
    assert idle.isolation is Isolation.TOOLCHAIN
