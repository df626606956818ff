"""If these fail, `longshore tasks attack` misses what a cheat could earn, or an attack earns something by default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.attacks.suite import ATTACKS
from sandbox.validation.attacks.trial import NOTHING, AttackResult, plan_trials, try_attacks
from sandbox.validation.attacks.within_tests import WITHIN_ATTACKS
from sandbox.validation.proofs import pool_proof_environment
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.cheats.graders import shell_task
from tests.support.tasks.public_test_scripts import HARBOR, REPORTS

pytestmark = [
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("verifier_half"),
]
TESTS = b"""
import subprocess, sys
sys.path.insert(0, "/app")

def test_imported():
    from solution import square
    assert square(12) == 144

def test_started():
    assert subprocess.run(["/app/square", "7"], capture_output=True, text=True).stdout == "49\\n"
"""
TASK = Task(
    "square",
    "",
    run_tests=HARBOR,
    reports=REPORTS,
    tests={"test_outputs.py": TESTS},
    test_timeout_s=60.0,
    memory_mb=256,
)


async def tried(pool: SandboxPool, task: Task, *names: str) -> list[AttackResult]:
    attacks = [each for each in ATTACKS if not names or each.name in names]
    return await try_attacks(plan_trials([task], attacks), pool_proof_environment(pool), 2)


def earnings(results: list[AttackResult]) -> dict[str, float]:
    assert all(each.reward is not None for each in results), results
    return {each.attack: each.reward for each in results if each.reward}


async def test_lies_in_the_tests_process_are_shown_and_what_cannot_be_prevented_is_found(pool: SandboxPool):
    task = replace(TASK, run_tests=TASK.run_tests.replace(" -rA", " -rA -k imported"))
    results = await tried(pool, task, *(each.name for each in WITHIN_ATTACKS if "imported" in each.name))
    allowed = {"an imported module that equals everything", "an imported module that reads what its caller expects"}
    assert earnings(results) == dict.fromkeys(allowed, 1.0)
    plain = {f"an imported module that {each}" for each in ("lets pytest end well", "lets tests skip themselves")}
    silent = {"an imported module that leaves with a summary"}
    assert {each.attack for each in results if not each.falsified} == {NOTHING.name} | plain | silent | allowed
    assert next(each for each in results if each.attack == NOTHING.name).isolation == "shared"


@pytest.mark.slow
async def test_no_attack_earns_anything_from_tests_that_import_or_start_nothing_of_the_agent(pool: SandboxPool):
    tests = {
        "test_outputs.py": b"import pathlib\ndef test_a(): assert pathlib.Path('/app/answer').read_text() == '42'\n"
    }
    results = await tried(pool, replace(TASK, tests=tests, image=python_image(pool.host)))
    assert len(results) >= 28
    assert earnings(results) == {}
    assert earnings(await tried(pool, shell_task(GradingLevel.SAME))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("level", GradingLevel)
async def test_only_what_validate_names_is_earned_from_tests_that_import_and_start_code_of_the_agent(
    pool: SandboxPool, level: GradingLevel
):
    results = await tried(pool, replace(TASK, image=python_image(pool.host), grading=level, artifacts=("/app",)))
    assert len(results) == len(ATTACKS) + 1
    assert earnings(results) == {}, "the reward file of a Harbor script is 1 only if every test passes"
