"""If these fail, an agent's link makes tests compare the expected results with themselves or with files of an earlier
grading."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.toolchain.build import build_toolchain
from tests.support.tasks.cheats.graders import grade_after, isolation_at
from tests.support.tasks.public_test_scripts import ENVIRONMENT, HARBOR, PROJECT, REPORTS

pytestmark = [
    pytest.mark.first_case,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("verifier_half"),
]
S = 60.0
EXPECTED = b"the answer is 42\n"
TESTS = b"""
from pathlib import Path

def test_answer():
    assert Path("/app/answer").read_text() == (Path(__file__).parent / "expected.txt").read_text()
"""
EXTRACTS = b"""
import shutil
from pathlib import Path

def test_answer(tmp_path):
    shutil.unpack_archive("/app/answer.tar", tmp_path)
    assert (tmp_path / "answer").read_text() == (Path(__file__).parent / "expected.txt").read_text()
"""
WRITES = b"""
from pathlib import Path

def test_answer(tmp_path):
    wanted = tmp_path / "wanted"
    wanted.write_text("the answer is 42\\n")
    assert Path("/app/answer").read_text() == wanted.read_text()
"""
PROJECT_TASK = Task(
    "answer",
    "",
    run_tests=PROJECT,
    tests={"test_outputs.py": TESTS, "expected.txt": EXPECTED},
    expected_tests=("test_answer",),
    artifacts=("/app",),
    test_timeout_s=S,
)
PRINTS = b"""
from pathlib import Path

def test_answer():
    print("the answer is 42")
    assert "the answer is 42" in Path("/app/answer").read_text()
"""
COMPARES = """#!/bin/bash
mkdir -p /logs/verifier
grep -v '^#' "$TEST_DIR/expected.txt" > /logs/verifier/wanted.txt
echo "=== short test summary info ==="
cmp /app/answer /logs/verifier/wanted.txt && echo "PASSED test_answer"
"""
TASKS = {
    "harbor": replace(PROJECT_TASK, run_tests=HARBOR, reports=REPORTS),
    "project": PROJECT_TASK,
    "environment": replace(PROJECT_TASK, run_tests=ENVIRONMENT),
}
UP = "../" * 6
CHEATS = {
    "file": "ln -s /tests/expected.txt answer",
    "relative": "ln -s ../tests/expected.txt answer",
    "chain": "ln -s a answer; ln -s ./b a; ln -s /app/c/expected.txt b; ln -s /tests c",
    "folder": "cd /; rm -rf /app; mkdir /tests; ln -s /tests /app; ln -s expected.txt /tests/answer",
    "of the test's process": "ln -s /proc/self/cwd/../tests/expected.txt answer",
    "through a link into proc": "ln -s /proc/self/root d; ln -s d/tests/expected.txt answer",
    "of a descriptor": "ln -s /dev/fd/3 answer; ln -s /dev/stdin a",
    "up from what comes later": f"ln -s .tbench-testing/lib/python3.13/site-packages/{UP}tests/expected.txt answer",
    "up from a folder that is replaced": "mkdir -p /1/2/3/4/5/app; cp -r . /1/2/3/4/5/app; cd /; rm -rf /app; "
    "ln -s /1/2/3/4/5/app /app; cd /app; mkdir -p .tbench-testing/bin .tbench-testing/lib/python3.13/site-packages; "
    f"ln -s .tbench-testing/lib/python3.13/site-packages/{UP}tests/expected.txt answer",
    "in a folder that is taken for the tests'": "mkdir -p /logs; ln -s /app /logs/verifier; "
    "ln -s /tests/expected.txt answer",
    "what a test will write": "ln -s /.sbx-tmp/pytest-of-root/pytest-0/test_answer0/wanted answer",
    "beyond any path": f"mkdir -p d; cd d; for i in $(seq 30); do mkdir {'n' * 200}; cd {'n' * 200}; done; "
    f"ln -s {'../' * 32}tests/expected.txt over; ln -s /tests/expected.txt /app/answer",
}


@pytest.mark.parametrize("level", GradingLevel)
@pytest.mark.parametrize("stock", TASKS)
@pytest.mark.parametrize("cheat", CHEATS)
async def test_a_link_to_a_file_of_the_tests_does_not_count_as_an_answer(
    pool: SandboxPool, cheat: str, stock: str, level: GradingLevel
):
    task = replace(TASKS[stock], grading=level)
    if cheat == "what a test will write":
        task = replace(task, tests={"test_outputs.py": WRITES})
    result = await grade_after(pool, task, CHEATS[cheat])
    assert (result.score, result.isolation) == (0.0, isolation_at(level)), result.log


@pytest.mark.parametrize("level", GradingLevel)
@pytest.mark.parametrize("link", ["/dev/stdout", "/proc/self/fd/1", "/var/log/x"])
async def test_a_link_to_the_output_of_a_test_does_not_count_as_an_answer(
    pool: SandboxPool, link: str, level: GradingLevel
):
    task = replace(PROJECT_TASK, grading=level, tests={"test_outputs.py": PRINTS})
    result = await grade_after(pool, task, f"ln -s /dev/stdout /var/log/x; ln -s {link} answer")
    assert (result.score, result.isolation) == (0.0, isolation_at(level)), result.log


@pytest.mark.parametrize(
    "fill",
    [
        "ln -s /tests/expected.txt answer; tar cf answer.tar answer; rm answer",
        "echo 1 > answer; mkdir tests; cp answer tests/expected.txt; tar cPf answer.tar --transform s,^tests,/tests, *",
    ],
    ids=["links to the tests", "replaces the tests"],
)
async def test_an_archive_that_leads_to_the_tests_does_not_count_as_an_answer(pool: SandboxPool, fill: str):
    task = replace(PROJECT_TASK, tests={"test_outputs.py": EXTRACTS, "expected.txt": EXPECTED})
    result = await grade_after(pool, task, fill)
    assert (result.score, result.isolation) == (0.0, isolation_at(task.grading)), result.log
    honest = await grade_after(pool, task, "echo 'the answer is 42' > answer; tar cf answer.tar answer")
    assert honest.score == 1.0, honest.log


@pytest.mark.parametrize("level", GradingLevel)
async def test_a_link_to_a_file_written_by_the_script_does_not_count_as_an_answer(
    pool: SandboxPool, level: GradingLevel
):
    task = replace(PROJECT_TASK, grading=level, run_tests=COMPARES, tests={"expected.txt": EXPECTED})
    result = await grade_after(pool, task, "ln -s /logs/verifier/wanted.txt answer")
    assert (result.score, result.isolation) == (0.0, isolation_at(level)), result.log
    assert (await grade_after(pool, task, "echo 'the answer is 42' > answer")).score == 1.0


@pytest.mark.parametrize("level", GradingLevel)
async def test_the_log_names_the_removed_links(pool: SandboxPool, level: GradingLevel):
    result = await grade_after(pool, replace(PROJECT_TASK, grading=level), CHEATS["file"])
    assert "[links that lead, or may come to lead, to the tests' hidden files were removed: /app/answer]" in result.log


async def test_a_toolchain_without_its_verifier_half_removes_them_too(docker_engine: SandboxHost):
    bare = await asyncio.to_thread(build_toolchain, docker_engine.home, None, None, lambda _: None)
    script = "#!/bin/sh\ncmp /app/answer /tests/expected.txt && echo PASSED test_answer\n"
    task = Task("bare", "", run_tests=script, tests={"expected.txt": EXPECTED}, expected_tests=("test_answer",))
    async with SandboxPool(PoolSettings("bare-links", "test", 1), replace(docker_engine, toolchain=bare)) as pool:
        result = await grade_after(pool, task, CHEATS["file"])
    assert result.score == 0.0
    assert "[links that lead, or may come to lead, to the tests' hidden files were removed: /app/answer]" in result.log


HONEST = """mkdir -p out/v1 bin; printf 'the answer is 42\\n' > out/v1/answer; ln -s v1 out/latest
ln -s out/latest/answer answer; ln -s /bin/sh bin/sh; ln -s none broken
ln -s loop loop; ln -s /proc/mounts mounts"""
LINKS = b"""
import os

def test_links():
    assert os.readlink("/app/out/latest") == "v1" and os.readlink("/app/broken") == "none"
    assert os.access("/app/bin/sh", os.X_OK)
    assert os.path.islink("/app/loop") and os.path.islink("/app/mounts")
"""


@pytest.mark.parametrize("level", GradingLevel)
@pytest.mark.parametrize("stock", TASKS)
async def test_harmless_links_of_an_agent_are_kept(pool: SandboxPool, stock: str, level: GradingLevel):
    own = {"test_outputs.py": TESTS + LINKS, "expected.txt": EXPECTED}
    task = replace(TASKS[stock], grading=level, tests=own, expected_tests=("test_answer", "test_links"))
    result = await grade_after(pool, task, HONEST)
    assert (result.score, result.isolation) == (1.0, isolation_at(level)), result.log
    assert "links that" not in result.log


async def test_a_sandbox_with_more_links_than_can_be_checked_in_time_scores_nothing(pool: SandboxPool, monkeypatch):
    monkeypatch.setattr("sandbox.grading.containers.symlink_guard.LIMIT_S", 0.0)
    result = await grade_after(pool, PROJECT_TASK, "printf 'the answer is 42\\n' > answer")
    assert result.score == 0.0
    assert "could not all be checked within 0 s" in result.log


MADE_SINCE = """find / \\( -path /proc -o -path /sys -o -path /dev -o -path /.sbx \\) -prune -o \\
    ! -type d -newer /app/before -print"""


@pytest.mark.parametrize("stock", TASKS)
async def test_a_grading_leaves_nothing_that_helps_to_pass_the_next_one(pool: SandboxPool, stock: str):
    task = replace(TASKS[stock], tests={"test_outputs.py": WRITES})
    async with pool.acquire(task) as session:
        await session.run("printf wrong > /app/answer; touch /app/before", S)
        assert (await grade_sandbox(session, task)).score == 0.0
        leftovers = set((await session.run(MADE_SINCE, S)).output.split())
        assert leftovers == {*task.reports}
        await session.run("cat /.sbx-tmp/*/*/*/wanted /tmp/*/*/*/wanted > /app/answer", S)
        assert (await grade_sandbox(session, task)).score == 0.0
        await session.run("printf 'the answer is 42\\n' > /app/answer", S)
        assert (await grade_sandbox(session, task)).score == 1.0


AS_NOBODY = b"""
import subprocess, sys

def test_answer(tmp_path):
    own = "import os\\ndef test_own(tmp_path): assert os.getuid() == 65534 and (tmp_path / 'x').write_text('x')\\n"
    subprocess.run(["mkdir", "-p", "/app/suite"], check=True)
    open("/app/suite/test_own.py", "w").write(own)
    done = subprocess.run(
        ["pytest", "-q", "-p", "no:cacheprovider", "."], user=65534, group=65534, extra_groups=[], cwd="/app/suite"
    )
    assert done.returncode == 0
"""


async def test_a_pytest_that_the_tests_start_as_user_nobody_has_a_temporary_folder(pool: SandboxPool):
    result = await grade_after(pool, replace(PROJECT_TASK, tests={"test_outputs.py": AS_NOBODY}), "true")
    assert result.score == 1.0, result.log
