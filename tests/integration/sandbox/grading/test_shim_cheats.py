"""If these fail, an agent can make a shim fail, or tests in a package import the agent's modules."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.cheats.graders import SOLUTION, harbor_task, project_task
from tests.support.tasks.public_test_scripts import ENVIRONMENT

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
LEVELS = (GradingLevel.SAME, GradingLevel.COMMIT)
SUMMARY = r"=== short test summary info ===\nPASSED test_answer\nPASSED test_square\n"
FORGED = f"""mkdir -p /app/evil/bin
for f in activate env bin/env; do
    echo "uv() {{ printf '{SUMMARY}'; }}" > /app/evil/$f
done
"""


def ours_to_script(pid: int) -> str:
    """Return links that lead to the forged files only for the script's process."""
    there = f"/proc/self/task/{pid}/root/app/evil"
    return f"{FORGED}mkdir -p /app/.tbench-testing; ln -s {there} /app/.tbench-testing/bin"


def ours_to_installed(pid: int) -> str:
    return f"{FORGED}rm -rf /root/.local; ln -s /proc/self/task/{pid}/root/app/evil /root/.local"


DEEP = f"""{FORGED}rm -rf /app/evil/bin; mv /app/evil /evil; rm -rf /app; p=
for i in $(seq 16); do p=$p/{"a" * 240}; done
mkdir -p /x$p; ln -s /x$p /l1; cd /x$p; mkdir -p .$p; ln -s /l1$p /app; cd /app
mkdir -p .tbench-testing; cp -r /evil .tbench-testing/bin; touch .tbench-testing/pyvenv.cfg
"""
"""Working directory whose name is longer than a path may be."""


def environment_task(level: GradingLevel, image: str) -> Task:
    return replace(project_task(level, image), run_tests=ENVIRONMENT)


async def scored(pool: SandboxPool, task: Task, command: str) -> tuple[float, Isolation, str]:
    async with pool.acquire(task) as session:
        await session.run(command, S)
        result = await grade_sandbox(session, task)
        return result.score, result.isolation, result.log


@pytest.mark.parametrize("level", LEVELS)
async def test_a_script_fails_when_links_take_the_place_of_its_environment_or_installer(
    pool: SandboxPool, level: GradingLevel
):
    task = environment_task(level, python_image(pool.host))
    for link in (ours_to_script, ours_to_installed):
        _, _, log = await scored(pool, replace(task, run_tests="#!/bin/bash\necho PID=$$\n"), link(1))
        found = re.search(r"PID=(\d+)", log)
        assert found
        for near in range(3):
            score, isolation, log = await scored(pool, task, link(int(found[1]) + near))
            assert (score, isolation) == (0.0, Isolation.TOOLCHAIN), log
    score, _, log = await scored(pool, task, DEEP)
    assert score == 0.0, log
    assert (await scored(pool, task, SOLUTION))[:2] == (1.0, Isolation.TOOLCHAIN)


HELPER = b"""if ! command -v uv > /dev/null; then curl -LsSf https://installer.example/uv/0.7.13/install.sh | sh; fi
source $HOME/.local/bin/env
"""


@pytest.mark.parametrize("level", LEVELS)
async def test_a_helper_of_the_tests_sources_no_files_of_the_agent(pool: SandboxPool, level: GradingLevel):
    task = project_task(level, python_image(pool.host))
    script = '#!/bin/bash\nsource "$TEST_DIR/setup-uv-pytest.sh"\nuv run pytest "$TEST_DIR/test_outputs.py" -rA\n'
    helped = replace(task, run_tests=script, tests={**task.tests, "setup-uv-pytest.sh": HELPER})
    score, isolation, log = await scored(
        pool, helped, f"{FORGED}mkdir -p /root/.local; mv /app/evil/bin /root/.local/bin"
    )
    assert (score, isolation) == (0.0, Isolation.TOOLCHAIN), log
    score, isolation, log = await scored(pool, helped, SOLUTION)
    assert (score, isolation) == (1.0, Isolation.TOOLCHAIN), log


MODULES = """for name in csv json _pytest pytest subprocess _winapi winreg numpy; do
    echo 'import pathlib, subprocess
pathlib.Path.read_bytes = lambda *_: b"the answer is 42\\n"
class Done: stdout = b"144\\n"
subprocess.run = lambda *_, **__: Done' > /$name.py
done; echo wrong > /app/answer"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [harbor_task, project_task])
async def test_modules_of_the_agent_do_not_shadow_others_in_a_package_of_tests(
    pool: SandboxPool, make, level: GradingLevel
):
    task = make(level, python_image(pool.host))
    wanting = (
        b"import csv, http.server, json\ntry:\n    import numpy\nexcept ImportError:\n    pass\n"
        + task.tests["test_outputs.py"]
    )
    package = replace(task, tests={**task.tests, "test_outputs.py": wanting, "__init__.py": b""})
    assert (await scored(pool, package, MODULES))[0] == 0.0
    named = replace(package, tests={**package.tests, "test_outputs.py": b"import app.own\n" + wanting})
    score, _, log = await scored(pool, named, f"{SOLUTION}; echo VALUE = 1 > /app/own.py")
    assert score == 1.0, log


PROJECT = """printf '%s\\n' '[project]' 'name = "evil"' 'version = "1"' '[project.scripts]' 'pytest = "evil:main"' \\
    '[build-system]' 'requires = []' 'build-backend = "backend"' 'backend-path = ["."]' > /app/pyproject.toml
echo 'raise SystemExit("built")' > /app/backend.py
"""


async def test_the_project_of_an_agent_is_not_built_when_the_tests_have_a_network(pool: SandboxPool):
    online = TaskNetwork(verify=NetworkMode.FULL)
    task = replace(project_task(GradingLevel.SAME, python_image(pool.host)), network=online)
    score, isolation, log = await scored(pool, task, f"{PROJECT}{SOLUTION}")
    assert (score, isolation) == (1.0, Isolation.TOOLCHAIN), log
    assert "built" not in log
