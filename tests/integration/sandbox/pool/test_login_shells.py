"""If these fail, Terminal-Bench's agents or tests lack what the image's profiles set, or get what an agent has written
there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session import login_shell
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
PROFILES = r"""
RUN useradd -m -s /bin/bash bob; mkdir -p /opt/tool; \
    printf '#!/bin/sh\necho tool\n' > /opt/tool/mytool; chmod 755 /opt/tool/mytool; \
    echo 'export OF_PROFILE=yes' > /etc/profile.d/q.sh; \
    echo 'export PATH=/opt/tool:$PATH LINES_="a\nb" HTTPS_PROXY=x GIVEN=rc; sleep 1000 & echo noise' >> /root/.bashrc; \
    echo 'export OF_BOB=yes' >> /home/bob/.bashrc
"""
TESTS = """#!/bin/bash
echo "=== short test summary info ==="
[ "$(mytool) $OF_PROFILE $LINES_ $GIVEN $TERM" = $'tool yes a\\nb rc tmux-256color' ] && echo PASSED t.py::test_a
"""


def box(pool: SandboxPool, steps: str = PROFILES) -> Task:
    """Return a task whose agent and tests work in login shells of an image with these steps."""
    dockerfile = f"FROM {pool.host.base_image}\n{steps}WORKDIR /app\n"
    build = ImageBuild({"Dockerfile": dockerfile.encode()})
    return Task("box", "", build=build, env={"GIVEN": "task"}, login_shell=True, run_tests=TESTS)


async def test_the_agent_and_its_terminals_have_what_profiles_set(pool: SandboxPool):
    async with pool.acquire(box(pool)) as session:
        shown = await session.run('echo "$(mytool) $OF_PROFILE $GIVEN ${HTTPS_PROXY-none} $TERM $HOME $SHLVL"', S)
        terminal = await session.open_terminal(("sh", "-c", "mytool"))
        assert await terminal.wait_until_ended(S)
    assert shown.output.rpartition(" ")[0] == "tool yes rc none dumb /root"
    assert terminal.new_output() == "tool\n"


@pytest.mark.parametrize("level", GradingLevel)
async def test_tests_have_what_profiles_of_the_image_set_and_not_those_of_the_agent(
    pool: SandboxPool, level: GradingLevel
):
    task = replace(box(pool), grading=level)
    async with pool.acquire(task) as session:
        await session.run("echo 'export GIVEN=agent' | tee -a /root/.bashrc > /etc/profile.d/z.sh", S)
        result = await grade_sandbox(session, task)
    assert result.score == 1.0, result.log


async def test_a_copy_is_tested_with_what_the_image_s_profiles_set(pool: SandboxPool):
    task = box(pool)
    async with pool.acquire(task) as session:
        fork = await pool.fork(session)
        try:
            result = await grade_sandbox(fork, task)
        finally:
            await pool.close(fork)
    assert result.score == 1.0, result.log


async def test_another_agent_has_what_its_own_profile_sets(pool: SandboxPool):
    task = replace(box(pool), agent_user="bob", tests_user="root")
    async with pool.acquire(task) as session:
        shown = await session.run('echo "$OF_BOB $OF_PROFILE ${GIVEN} $(whoami)"', S)
        result = await grade_sandbox(session, task)
    assert (shown.output, result.score) == ("yes yes task bob\n", 1.0), result.log


@pytest.mark.parametrize(
    "steps", ["RUN echo exit >> /root/.bashrc\n", "RUN echo 'export A=$(seq 99999)' >> /root/.bashrc\n"]
)
async def test_a_profile_that_ends_the_shell_or_sets_too_much_sets_nothing(pool: SandboxPool, steps: str):
    async with pool.acquire(box(pool, f"{PROFILES}{steps}")) as session:
        shown = await session.run('echo "${OF_PROFILE-none} $GIVEN"', S)
    assert shown.output == "none task\n"


async def test_other_tasks_start_no_login_shell(pool: SandboxPool):
    build = ImageBuild({"Dockerfile": f"FROM {pool.host.base_image}\n{PROFILES}".encode()})
    async with pool.acquire(Task("box", "", build=build)) as session:
        assert (await session.run('echo "${OF_PROFILE-none}"; ls -d /logs', S)).output.startswith("none\nls: ")


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ("RUN echo 'sleep 1000' >> /root/.bashrc\n", "none task\n"),
        ("ENV SHELL=/bin/none\n", "none task\n"),
        ("RUN rm -f /usr/bin/bash /bin/bash\n", "the image has no bash, which runs the agent's commands\n"),
    ],
)
async def test_a_login_shell_that_hangs_or_is_not_there_sets_nothing(
    pool: SandboxPool, steps: str, output: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_shell, "LIMIT_S", 1)
    async with pool.acquire(box(pool, f"{PROFILES}{steps}")) as session:
        shown = await session.run('echo "${OF_PROFILE-none} $GIVEN"', S)
    assert shown.output.endswith(output)
