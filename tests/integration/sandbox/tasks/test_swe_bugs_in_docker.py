"""If these fail, a bug of SWE-SYNTH is graded by something else than what the agent did to the repository."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import TaskFault
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset
from sandbox.tasks.formats.swe_bugs.bug_rows import FORMAT, find_bug
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task
from sandbox.validation.proofs import ProofVerdict, pool_proof_environment, prove_tasks
from tests.support.sandbox.git_repository import SECRET, repository_build
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.bug_rows import BASE, RIGHT, TESTS, bug_row, image_bug_row
from tools.swe_bugs import make_patch

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
OURS = load_labelled_dataset(BUILT_IN_CATALOG, "longshore-swe").tasks
NEEDS_DATA = "import pathlib\n\nassert pathlib.Path('tests/made.dat').exists()\n"
"""A file of the image that git ignores stays."""
WHOLE = {
    "conftest.py": "from __future__ import annotations\n\nimport subprocess\n\nimport pkg\nimport under_src\n\n"
    "assert subprocess.run(['/app/run.sh']).returncode == 0 == len(pkg.__path__) - 1\n",
    "pkg/__init__.py": "",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p no:cacheprovider'\n",
    "run.sh": "#!/bin/sh\n",
    "src/under_src.py": "",
}
FIX = "sed -i 's/a + b/a - b/' calc.py"


@pytest.fixture(scope="module")
def image_task(pool: SandboxPool, tmp_path_factory: pytest.TempPathFactory) -> Task:
    files = {**RIGHT, "calc.py": BASE, "conftest.py": NEEDS_DATA, ".gitignore": "*.dat\n"}
    build = repository_build(python_image(pool.host), tmp_path_factory.mktemp("git"), files)
    return replace(read(image_bug_row()), build=replace(build, files=build.files | {"app/tests/made.dat": b""}))


def read(row: dict[str, Any]) -> Task:
    problems = TaskProblems(Path("row"))
    task = FORMAT.read(row, problems)
    assert problems.found == []
    return task


def show_patch(task: Task) -> str:
    bug = find_bug(task)
    assert bug is not None
    return f"({bug.show_patch})"


async def grade_after(pool: SandboxPool, task: Task, commands: str) -> GradeResult:
    async with pool.acquire(task) as session:
        done = await session.run(commands, 60.0)
        assert done.exit_code == 0, done.output
        return await grade_sandbox(session, task)


async def test_each_bug_of_ours_is_solved_by_its_oracle_alone(pool: SandboxPool):
    proofs = await prove_tasks(OURS, pool_proof_environment(pool), 4)
    assert {proof.verdict for proof in proofs} == {ProofVerdict.PROVED}, proofs
    assert {(proof.oracle, proof.noop) for proof in proofs} == {(1.0, 0.0)}


async def test_a_repository_in_its_row_is_whole(pool: SandboxPool):
    row = bug_row()
    row["original"]["gold_patch"] += make_patch({}, WHOLE).replace(
        "100644\n--- /dev/null\n+++ b/r", "100755\n--- /dev/null\n+++ b/r"
    )
    (proof,) = await prove_tasks([read(row)], pool_proof_environment(pool), 1)
    assert (proof.verdict, proof.oracle, proof.noop) == (ProofVerdict.PROVED, 1.0, 0.0), proof


async def test_a_bug_in_an_image_is_solved_by_its_oracle_alone(pool: SandboxPool, image_task: Task):
    (proof,) = await prove_tasks([image_task], pool_proof_environment(pool), 1)
    assert (proof.verdict, proof.oracle, proof.noop) == (ProofVerdict.PROVED, 1.0, 0.0), proof
    assert proof.why == "1 of 2 tests pass without any work"


async def test_the_agent_finds_one_commit_and_no_patch(pool: SandboxPool, image_task: Task):
    async with pool.acquire(image_task) as session:
        log = await session.run("git log --all --format=%s; git tag; git status --short", 30.0)
        assert log.output.split("\n") == ["Initial state", ""]
        found = await session.run(f"grep -rlE '{SECRET}|a - b' /app /var /tmp; cat calc.py", 30.0)
        assert found.output == "def sub(a, b):\n    return a + b\n"
        assert (await session.run(f"{FIX}; {show_patch(image_task)}", 30.0)).output == (
            (await session.run("git diff", 30.0)).output
        )


@pytest.mark.parametrize(
    ("commands", "passed"),
    [
        pytest.param(FIX, 2, id="fix"),
        pytest.param("sed -i 's/a + b/a/' calc.py; sed -i 's/== 1/== 3/' tests/test_calc.py", 1, id="changed-test"),
        pytest.param(f"{FIX}; rm tests/*.py", 2, id="removed-tests"),
        pytest.param(f"{FIX}; rm -rf .git; git init -q; git add -A", 2, id="new-history"),
        pytest.param("echo 'import os; os._exit(0)' > tests/conftest.py", 1, id="added-conftest"),
        pytest.param(
            "printf '[pytest]\\naddopts = --co\\n' > pytest.ini; echo x > tests/y.log; echo tests >> .gitignore",
            1,
            id="added-settings",
        ),
        pytest.param(
            "printf '[tool.pytest.ini_options]\\naddopts = \"--co\"\\n' > pyproject.toml", 1, id="added-pyproject"
        ),
        pytest.param(
            "printf '#!/bin/sh\\nexit 0\\n' > /usr/bin/pytest; echo exit > /usr/local/bin/git", 1, id="programs"
        ),
    ],
)
async def test_what_the_agent_does_to_tests_counts_for_nothing(
    pool: SandboxPool, image_task: Task, commands: str, passed: int
):
    result = await grade_after(pool, image_task, commands)
    assert [test.name for test in result.tests] == TESTS
    assert sum(test.passed for test in result.tests) == passed, result.log


async def test_changed_tests_of_ours_count_for_nothing(pool: SandboxPool):
    result = await grade_after(pool, OURS[11], "rm -r tests; echo 'import os; os._exit(0)' > conftest.py")
    assert (len(result.tests), result.pass_ratio) == (61, 60 / 61), result.log


async def test_a_bug_that_does_not_apply_is_the_tasks_fault(pool: SandboxPool, image_task: Task):
    row = image_bug_row()
    row["bug"]["patch"] = make_patch({"calc.py": "x\n"}, {"calc.py": "y\n"})
    with pytest.raises(TaskFault, match="the bug patch does not apply"):
        async with pool.acquire(replace(read(row), build=image_task.build)):
            pass


async def test_the_patch_of_an_attempt_is_shown(pool: SandboxPool):
    task = OURS[10]
    async with pool.acquire(task) as session:
        assert (await session.run(show_patch(task), 30.0)).output == ""
        await session.run("sed -i '/^ *break$/d' pagetext/patterns.py; echo new > note.txt", 30.0)
        patch = (await session.run(show_patch(task), 30.0)).output
    assert patch.startswith(
        "diff --git a/note.txt b/note.txt\nnew file mode 100644\n--- /dev/null\n+++ b/note.txt\n@@ "
    )
    assert "--- a/pagetext/patterns.py\n+++ b/pagetext/patterns.py\n@@ " in patch
    assert "-                break\n" in patch
