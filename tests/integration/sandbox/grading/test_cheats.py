"""If these fail, a known attack on a grader earns a reward, or honest work does not: every attack must score 0 at every
level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import SandboxDestroyed
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.cheats.attacks import ATTACKS, CLEAN, LEVELS, GraderAttack, GraderKind
from tests.support.tasks.cheats.graders import (
    EXPECTED,
    SOLUTION,
    careless_task,
    harbor_task,
    isolation_at,
    project_task,
    pytest_task,
    shell_task,
    unnamed_task,
)
from tests.support.tasks.cheats.library import build_library

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0


ON_PYTHON = {
    GraderKind.HARBOR: harbor_task,
    GraderKind.PROJECT: project_task,
    GraderKind.PYTEST: pytest_task,
    GraderKind.UNNAMED: unnamed_task,
}

RUNS_THE_IMAGE_S = GraderKind.PYTEST | GraderKind.CARELESS
"""Graders whose script starts a program that the agent could have created."""


def task_of(grader: GraderKind, level: GradingLevel, image: str) -> Task:
    """Return the task with this grader; ``image`` has a Python."""
    if grader in ON_PYTHON:
        return ON_PYTHON[grader](level, image)
    if grader is GraderKind.SHELL:
        return replace(shell_task(level), artifacts=() if level is GradingLevel.SIBLING else ("/app",))
    return careless_task(level)


def cases() -> Iterator[object]:
    """Yield the cases; the quick ones are each attack on the grader that it targets, at the default level."""
    for attack in ATTACKS:
        first = next(grader for grader in GraderKind if grader in attack.on)
        for grader in GraderKind:
            if grader not in attack.on or not attack.attack.plan(task_of(grader, GradingLevel.SAME, "")):
                continue
            for level in attack.image_levels if grader is GraderKind.PYTEST else LEVELS:
                quick = level is GradingLevel.SAME and grader in (first, GraderKind.CARELESS)
                marks = () if quick else (pytest.mark.slow,)
                yield pytest.param(attack, grader, level, marks=marks, id=f"{grader.name}-{level}-{attack.name}")


async def graded(pool: SandboxPool, task: Task, command: str) -> GradeResult | None:
    """Return None if the agent destroyed its own sandbox."""
    async with pool.acquire(task) as session:
        try:
            await session.run(command, S)
            return await grade_sandbox(session, task)
        except SandboxDestroyed:
            return None


@pytest.mark.parametrize(("attack", "grader", "level"), list(cases()))
async def test_a_cheat_scores_nothing(pool: SandboxPool, attack: GraderAttack, grader: GraderKind, level: GradingLevel):
    task = task_of(grader, level, python_image(pool.host))
    result = await graded(pool, task, attack.attack.plan(task))
    if result is not None:
        assert (result.score, result.pass_ratio, result.all_passed) == (0.0, 0.0, False), result.log
        assert grader is GraderKind.UNNAMED or tuple(test.name for test in result.tests) == EXPECTED
        assert result.level is level
        of_script = Isolation.IMAGE if grader in RUNS_THE_IMAGE_S else Isolation.TOOLCHAIN
        assert result.isolation is isolation_at(level, of_script)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "grader",
    [GraderKind.SHELL, GraderKind.CARELESS, *(pytest.param(each, marks=pytest.mark.slow) for each in ON_PYTHON)],
)
async def test_honest_work_scores_one_and_half_of_it_a_half(pool: SandboxPool, grader: GraderKind, level: GradingLevel):
    task = task_of(grader, level, python_image(pool.host))
    whole = await graded(pool, task, SOLUTION)
    assert whole is not None
    assert (whole.score, whole.all_passed, whole.level) == (1.0, True, level), whole.log
    half = await graded(pool, replace(task, weights={"test_answer": 3.0}), SOLUTION.partition(";")[0])
    assert half is not None
    assert (half.score, half.pass_ratio, half.all_passed) == (0.75, 0.5, False), half.log


@pytest.mark.slow
@pytest.mark.parametrize("attack", [each for each in ATTACKS if each.image_levels == CLEAN], ids=lambda each: each.name)
async def test_an_attack_that_needs_a_clean_image_fools_the_python_of_the_image(
    pool: SandboxPool, attack: GraderAttack
):
    task = task_of(GraderKind.PYTEST, GradingLevel.SAME, python_image(pool.host))
    result = await graded(pool, task, attack.attack.plan(task))
    assert result is not None
    assert result.all_passed, "the attack has no teeth: that the toolchain's Python resists it proves nothing"
    assert result.isolation is Isolation.IMAGE


CONVERTER = """
for g in /usr/lib/*-linux-gnu/gconv /usr/lib/gconv /usr/lib64/gconv; do
    mkdir -p $g; rm -rf $g/gconv-modules.cache $g/gconv-modules.d; cp /tmp/evil.so $g/EVIL.so
    printf 'module INTERNAL ISO-10646/UTF8/ EVIL 1\\nmodule ISO-10646/UTF8/ INTERNAL EVIL 1\\n' > $g/gconv-modules
done
for l in /lib /usr/lib /lib/*-linux-gnu; do cp /tmp/evil.so $l/libnss_evil.so.2; done
echo 'passwd: evil' > /etc/nsswitch.conf; touch /app/answer
"""
AS_BASH = replace(
    shell_task(GradingLevel.SAME), run_tests=shell_task(GradingLevel.SAME).run_tests.replace("/sh", "/bash", 1)
)


@pytest.mark.parametrize("grader", [GraderKind.SHELL, GraderKind.HARBOR, "bash"])
@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.COMMIT])
async def test_a_library_that_the_containers_libc_would_load_is_not_loaded(
    pool: SandboxPool, grader: GraderKind | str, level: GradingLevel, tmp_path: Path
):
    task = (
        replace(AS_BASH, grading=level) if isinstance(grader, str) else task_of(grader, level, python_image(pool.host))
    )
    evil = build_library(tmp_path)
    result = await graded(pool, replace(task, files={"/tmp/evil.so": evil}), CONVERTER)
    assert result is not None
    assert (result.score, result.isolation) == (0.0, Isolation.TOOLCHAIN), result.log


async def test_there_are_at_least_twenty_attacks_with_unique_names():
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names) >= 20
