"""If this fails, the agent can configure tests that bring settings of other tools."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task_grading import GradingLevel
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.cheats.attacks import ATTACKS
from tests.support.tasks.cheats.graders import SOLUTION, harbor_task, project_task

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
SETTINGS = next(
    each.attack.command for each in ATTACKS if each.name == "pytest settings above the tests and their reports"
)
BROUGHT = {"pyproject.toml": b"[tool.ruff]\nline-length = 100\n", "setup.cfg": b"[flake8]\nmax-line-length = 100\n"}


@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.COMMIT], ids=str)
@pytest.mark.parametrize("make", [harbor_task, project_task])
@pytest.mark.parametrize("brought", BROUGHT)
async def test_settings_of_an_agent_do_not_configure_the_tests(
    pool: SandboxPool, make, brought: str, level: GradingLevel
):
    task = make(level, python_image(pool.host))
    task = replace(task, tests={**task.tests, brought: BROUGHT[brought]})
    for command, score in ((SETTINGS, 0.0), (SOLUTION, 1.0)):
        async with pool.acquire(task) as session:
            await session.run(command, S)
            result = await grade_sandbox(session, task)
        assert (result.score, result.isolation) == (score, Isolation.TOOLCHAIN), result.log
