"""If these fail, tests lack variables that the image's author set, or these variables let an agent into the tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel
from tests.support.tasks.cheats.graders import isolation_at
from tests.support.tasks.public_test_scripts import PROJECT

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
TESTS = b"""
import os, subprocess
def test_tool(): assert subprocess.check_output(["mytool"]) == b"tool\\n"
def test_image(): assert os.environ["MODE"] == "prod" and os.environ["HOME"] == "/root"
def test_task(): assert os.environ["SEED"] == "7"
"""
SCRIPT = """#!/bin/bash
echo "=== short test summary info ==="
image="$(mytool) $MODE $SEED ${PYTHONPATH%%:*} $HOME"
[ "$image" = "tool prod 7 /opt/lib /home/user" ] && python3 -c "import mymod" || exit 1
echo "PASSED test_tool"
"""
TOOL = r"""
RUN mkdir -p /opt/tool/bin /opt/lib; touch /opt/lib/mymod.py; cd /opt/tool/bin; \
    printf '#!/bin/sh\necho tool\n' > mytool; chmod 755 mytool
"""
NAMES = ("test_tool", "test_image", "test_task")


def box(pool: SandboxPool, env: str, level: GradingLevel = GradingLevel.SAME) -> Task:
    """Open a sandbox of an image with these variables, tested by a public script."""
    dockerfile = f"FROM {pool.host.base_image}\nENV {env}\n{TOOL}WORKDIR /app\n"
    build = ImageBuild({"Dockerfile": dockerfile.encode()})
    task = Task("box", "", build=build, env={"SEED": "7"}, artifacts=("/app",), grading=level)
    return replace(task, run_tests=PROJECT, tests={"test_outputs.py": TESTS}, expected_tests=NAMES)


HONEST = "PATH=/opt/tool/bin:$PATH MODE=prod PYTHONPATH=/opt/lib HOME=/home/user LC_ALL=en_US.UTF-8"


async def graded(pool: SandboxPool, task: Task, command: str) -> GradeResult:
    async with pool.acquire(task) as session:
        await session.run(command, S)
        return await grade_sandbox(session, task)


@pytest.mark.parametrize("level", GradingLevel)
async def test_tests_have_the_variables_of_the_image_and_the_task(pool: SandboxPool, level: GradingLevel):
    task = box(pool, HONEST, level)
    result = await graded(pool, task, "true")
    assert (result.score, result.isolation) == (1.0, isolation_at(level, Isolation.SHARED)), result.log
    task = replace(task, run_tests=SCRIPT, tests={}, expected_tests=NAMES[:1])
    result = await graded(pool, task, "true")
    assert (result.score, result.isolation) == (1.0, isolation_at(level, Isolation.IMAGE)), result.log


async def test_a_sandboxs_copy_is_tested_with_the_variables_of_the_tasks_image(pool: SandboxPool):
    task = box(pool, HONEST, GradingLevel.COMMIT)
    async with pool.acquire(task) as session:
        fork = await pool.fork(session)
        try:
            again = await pool.fork(fork)
            try:
                result = await grade_sandbox(again, task)
            finally:
                await pool.close(again)
        finally:
            await pool.close(fork)
    assert result.score == 1.0, result.log


ENTRIES = "LD_PRELOAD=/app/evil.so LD_LIBRARY_PATH=/app PYTHONPATH=/app PYTHONSTARTUP=/app/evil.py BASH_ENV=/app/env \
ENV=/app/env PYTEST_ADDOPTS='-p evil' PYTEST_PLUGINS=evil OPENSSL_CONF=/app/openssl.cnf GCONV_PATH=/app LOCPATH=/app \
PATH=/app/bin:$PATH HOME=/app/home MODE=prod"
PLANTED = """
mkdir -p bin home/.local/bin
printf 'raise SystemExit(0)\\n' | tee evil.py sitecustomize.py usercustomize.py pytest.py > /dev/null
echo 'exit 0' | tee env home/.local/bin/env > /dev/null
for f in bash sh uv pytest python3 mkdir cat grep mytool; do
    printf '#!/bin/sh\\necho ran >> /app/ran; echo tool\\n' > bin/$f; chmod 755 bin/$f
done
"""


async def test_image_variables_that_lead_to_agent_files_do_not_affect_programs_of_the_toolchain(
    pool: SandboxPool,
):
    tests = {"test_outputs.py": b"import os\ndef test_ran(): assert not os.path.exists('/app/ran')\n" + TESTS}
    task = replace(box(pool, ENTRIES), tests=tests, expected_tests=("test_ran", *NAMES))
    result = await graded(pool, task, PLANTED)
    assert (result.score, result.isolation) == (1.0, Isolation.SHARED), result.log


async def test_the_agent_s_shell_has_the_variables_of_the_image_and_the_task(pool: SandboxPool):
    ask = 'echo "$(mytool) $MODE $SEED ${PATH%%:*} $HOME $LANG $PAGER"'
    known = HONEST.replace("en_US", "C")
    async with pool.acquire(box(pool, known)) as session:
        assert (await session.run(ask, S)).output == "tool prod 7 /opt/tool/bin /home/user C.UTF-8 cat\n"
    async with pool.acquire(Task("plain", "")) as session:
        assert (await session.run('echo "$PATH $HOME"', S)).output == (
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /root\n"
        )
