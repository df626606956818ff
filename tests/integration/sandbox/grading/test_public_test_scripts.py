"""If these fail, published tasks cannot be graded here: their scripts install the programs that run their tests."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.toolchain.build import build_toolchain
from tests.support.tasks.cheats.graders import isolation_at
from tests.support.tasks.public_test_scripts import PROJECT, STOCK

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
TESTS = b"""
import os, pathlib, sqlite3, ssl, subprocess, sys
import pytest

def test_answer():
    assert pathlib.Path("/app/answer").read_text() == "42"

def test_where():
    assert os.getcwd() == "/app" and pathlib.Path("/app/given").exists()
    assert sqlite3.connect(":memory:").execute("select 42").fetchone() == (42,)
    assert subprocess.run(["python3", "-c", "import pytest"]).returncode == 0
"""


@pytest.fixture(autouse=True)
def _verifier(docker_engine: SandboxHost) -> None:
    if not (docker_engine.toolchain / "verify").exists():
        pytest.skip("the toolchain has no verifier half here: longshore toolchain build says why")


def stock(name: str, level: GradingLevel) -> Task:
    script, reports = STOCK[name]
    return Task(
        "stock",
        "",
        run_tests=script,
        tests={"test_outputs.py": TESTS},
        files={"/app/given": b""},
        expected_tests=("test_answer", "test_where"),
        reports=reports,
        grading=level,
        artifacts=("/app",),
        test_timeout_s=S,
    )


@pytest.mark.parametrize("level", GradingLevel)
@pytest.mark.parametrize("name", STOCK)
async def test_the_oracle_scores_one_and_doing_nothing_does_not(pool: SandboxPool, name: str, level: GradingLevel):
    task = stock(name, level)
    async with pool.acquire(task) as session:
        idle = await grade_sandbox(session, task)
        assert [test.passed for test in idle.tests] == [False, True], idle.log
        assert not idle.all_passed
        await session.run("printf 42 > /app/answer", S)
        solved = await grade_sandbox(session, task)
        assert (solved.score, solved.all_passed, solved.isolation) == (
            1.0,
            True,
            isolation_at(level, Isolation.SHARED),
        ), solved.log
        assert (solved.level, solved.reward) == (level, 1.0 if task.reports else None)


async def test_a_package_missing_from_the_toolchain_is_named_in_the_log_and_passes_nothing(pool: SandboxPool):
    task = stock("project", GradingLevel.SAME)
    more = Task(
        "more",
        "",
        run_tests=PROJECT.replace("pytest==8.4.1", "pytest==8.4.1 pandas==2.3.0").replace("uv run", "exit 3; uv run"),
        tests=task.tests,
        expected_tests=task.expected_tests,
    )
    async with pool.acquire(more) as session:
        result = await grade_sandbox(session, more)
        assert "needs-network uv pandas==2.3.0" in result.log
        assert (result.score, result.isolation) == (0.0, Isolation.IMAGE)


async def test_an_agent_neither_finds_the_toolchain_on_its_path_nor_can_change_it(pool: SandboxPool):
    async with pool.acquire(Task("look", "")) as session:
        found = await session.run(
            "for p in uv uvx pytest apt-get; do command -v $p; done | grep sbx; env | grep -c UV_", S
        )
        assert found.output == "0\n"
        for attempt in (
            "echo > /.sbx/verify/shim/uv",
            "rm -f /.sbx/verify/env/bin/pytest",
            "mv /.sbx /gone",
            "mount --bind /app /.sbx/verify",
            "umount /.sbx",
            "mount -o remount,rw /.sbx",
        ):
            assert (await session.run(attempt, S)).exit_code, attempt


async def test_a_machine_without_the_verifier_half_grades_by_the_images_bash_and_says_so(docker_engine: SandboxHost):
    bare = await asyncio.to_thread(build_toolchain, docker_engine.home, None, None, lambda _: None)
    script = "#!/bin/bash\na=(short test summary info)\necho ${a[@]}\necho PASSED test_x\n"
    task = Task("bare", "", run_tests=script, expected_tests=("test_x",))
    async with (
        SandboxPool(PoolSettings("bare-toolchain", "test", 1), replace(docker_engine, toolchain=bare)) as pool,
        pool.acquire(task) as session,
    ):
        result = await grade_sandbox(session, task)
        assert (result.all_passed, result.isolation) == (True, Isolation.IMAGE), result.log
