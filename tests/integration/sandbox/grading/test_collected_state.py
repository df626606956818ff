"""If these fail, what an agent leaves running is not recorded for the tests, or an agent gains rights by the record."""

from __future__ import annotations

import pytest

from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import CollectCommand, GradingLevel
from tests.support.tasks.cheats.graders import REWARD

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
STRANGER = "it has no user 'stranger' in /etc/passwd"


async def test_commands_run_one_after_another_and_a_failure_is_noted_alone(pool: SandboxPool):
    task = Task(
        "t",
        "do",
        reports=(REWARD,),
        run_tests=f'#!/bin/bash\n[ "$(cat /app/state)" = "nobody 1" ] && echo 1 > {REWARD}',
        grading=GradingLevel.LIVE,
        agent_user="nobody",
        collect=(
            CollectCommand("(whoami; ps -e -o args | grep -c '^the-job') | xargs > /tmp/state", user="nobody"),
            CollectCommand("echo lost; exit 3"),
            CollectCommand("sleep 1000", timeout_s=0.1),
            CollectCommand("true", user="stranger"),
            CollectCommand("cp /tmp/state /app/"),
        ),
    )
    async with pool.acquire(task) as session:
        await session.run("(exec -a the-job sleep 1000) > /dev/null 2>&1 &", 20.0)
        graded = await grade_sandbox(session, task)
        assert (await session.run("whoami", 20.0)).output == "nobody\n"
    assert graded.all_passed
    assert [line for line in graded.log.splitlines() if "collect command" in line] == [
        "the collect command 'echo lost; exit 3' exited with 3: 'lost\\n'",
        "the collect command 'sleep 1000' took longer than 0.1 s",
        f"the collect command 'true' could not be run: the task's user cannot be used: {STRANGER}",
    ]


async def test_a_program_that_collects_has_no_more_rights_than_the_agents(pool: SandboxPool):
    capabilities = "grep CapEff /proc/self/status"
    task = Task(
        "t",
        "do",
        reports=(REWARD,),
        run_tests=f"#!/bin/bash\ncmp /app/agent /app/collected && echo 1 > {REWARD}",
        grading=GradingLevel.LIVE,
        collect=(CollectCommand(f"{capabilities} > /app/collected"),),
    )
    async with pool.acquire(task) as session:
        await session.run(f"{capabilities} > /app/agent", 20.0)
        assert (await grade_sandbox(session, task)).all_passed
