"""If these fail, tests whose script starts the image's pytest are graded by programs that the agent can replace,
although the toolchain's could run them, or honest work scores otherwise than by the image's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.steps import task_reward
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.cheats.graders import grade_after

pytestmark = [
    pytest.mark.first_case,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("verifier_half"),
]
REWARD = "/logs/verifier/reward.txt"
SCRIPTS = {
    "bare": f"#!/bin/bash\npytest /tests/test_outputs.py -rA\nx=$?\necho $((1 - (x > 0))) > {REWARD}\nexit $x\n",
    "module": f"cd /app\npython3 -m pytest -q /tests/test_outputs.py && echo 1 > {REWARD} || echo 0 > {REWARD}\n",
    "installed": f"pip install -q pytest==8.4.1\npython -m pytest /tests && echo 1 > {REWARD} || echo 0 > {REWARD}\n",
}
TESTS = b"""
import os, pathlib, shutil, subprocess

def test_answer():
    assert pathlib.Path("/app/answer").read_text() == "42"

def test_programs_of_the_image_are_started():
    assert shutil.which("python3") == "/usr/bin/python3"
    said = subprocess.run(["python3", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True)
    assert said.stdout == "/usr\\n"
    assert "VIRTUAL_ENV" not in os.environ
"""
TASK = Task("answer", "", reports=(REWARD,), tests={"test_outputs.py": TESTS}, test_timeout_s=60.0)
REPLACED = (
    "printf '#!/bin/sh\\necho PASSED test_answer; exit 0\\n' > fake; chmod 755 fake; "
    "for d in /usr/local/bin /usr/bin; do for f in pytest py.test pip; do cp fake $d/$f; done; done; "
    "cp fake /usr/local/bin/python"
)


@pytest.mark.parametrize("script", SCRIPTS)
async def test_the_toolchains_pytest_runs_them_and_a_replaced_one_earns_nothing(pool: SandboxPool, script: str):
    task = replace(TASK, run_tests=SCRIPTS[script], image=python_image(pool.host))
    for command, reward in (("printf 42 > answer", 1.0), ("printf 41 > answer", 0.0), (REPLACED, 0.0)):
        result = await grade_after(pool, task, command)
        assert (result.reward, result.all_passed) == (reward, reward == 1.0), result.log
        assert result.isolation is Isolation.SHARED  # the tests start programs as root


UNNAMED = {
    "verbose": f"pytest /tests/test_outputs.py -v --tb=short\necho $((1 - ($? > 0))) > {REWARD}\n",
    "quiet": f"cd /app\npython3 -m pytest -q /tests/test_outputs.py && echo 1 > {REWARD} || echo 0 > {REWARD}\n",
    "hidden": f"pytest -rA /tests/test_outputs.py > /dev/null && echo 1 > {REWARD} || echo 0 > {REWARD}\n",
}
"""Scripts that show no name of a test that passed."""
READS, IMPORTS = b"", b"import sys\nsys.path.insert(0, '/app')\nimport solution\n"
LEAVES = "echo 'import os; os._exit(0)' > solution.py"
LEAVES_LATE = "echo 'import atexit, os; atexit.register(os._exit, 0)' > solution.py"


@pytest.mark.parametrize("script", UNNAMED)
@pytest.mark.parametrize(
    ("first", "isolation"), [(READS, Isolation.TOOLCHAIN), (IMPORTS, Isolation.IMAGE)], ids=["reads", "imports"]
)
async def test_a_script_that_names_no_passed_test_is_believed_where_none_failed(
    pool: SandboxPool, script: str, first: bytes, isolation: Isolation
):
    text = (
        first + b"from pathlib import Path\n\ndef test_answer():\n    assert Path('/app/answer').read_text() == '42'\n"
    )
    task = replace(
        TASK,
        run_tests=UNNAMED[script],
        tests={"test_outputs.py": text},
        expected_tests=("test_answer",),
        image=python_image(pool.host),
    )
    right, cheats = "touch solution.py; printf 42 > answer", (LEAVES, LEAVES_LATE) if first else ()
    for command, reward in (
        (right, 1.0),
        ("touch solution.py; printf 41 > answer", 0.0),
        *((each, 0) for each in cheats),
    ):
        result = await grade_after(pool, task, command)
        assert (task_reward(task, result), result.isolation) == (reward, isolation), result.log


async def test_tests_that_need_the_images_python_run_on_it(pool: SandboxPool):
    tests = {"test_outputs.py": TESTS + b"\ndef test_python():\n    import sys\n    assert sys.prefix == '/usr'\n"}
    task = replace(TASK, run_tests=SCRIPTS["module"], tests=tests, image=python_image(pool.host))
    result = await grade_after(pool, task, "printf 42 > answer")
    assert (result.reward, result.isolation) == (1.0, Isolation.IMAGE), result.log


async def test_tests_in_an_image_whose_variables_the_toolchain_withholds_run_on_it(pool: SandboxPool):
    dockerfile = f"FROM {python_image(pool.host)}\nENV PYTHONPATH=/opt/lib\n"
    tests = {"test_outputs.py": TESTS + b"\ndef test_path():\n    assert os.environ['PYTHONPATH'] == '/opt/lib'\n"}
    build = ImageBuild({"Dockerfile": dockerfile.encode()})
    result = await grade_after(
        pool, replace(TASK, run_tests=SCRIPTS["module"], tests=tests, build=build), "printf 42 > answer"
    )
    assert (result.reward, result.isolation) == (1.0, Isolation.IMAGE), result.log
