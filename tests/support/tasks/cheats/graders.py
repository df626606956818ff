"""The graders that the cheats are tried on: the same task, tested by shell scripts, by stock scripts and by pytest.

The task: leave the answer in /app/answer and a program /app/square that prints the square of its argument.  Both
graders know the answer only from a hidden file, run the agent's program as nobody, and need two tests to pass.
"""

from __future__ import annotations

from dataclasses import replace

from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from tests.support.tasks.public_test_scripts import HARBOR, PROJECT, REPORTS

EXPECTED = ("test_answer", "test_square")
REWARD = "/logs/verifier/reward.txt"
SOLUTION = (
    "printf 'the answer is 42\\n' > /app/answer; "
    "printf '#!/bin/sh\\necho $(($1 * $1))\\n' > /app/square; chmod +x /app/square"
)

_SHELL = """#!/bin/sh
as_nobody() {
    program=$1; shift
    timeout 30 start-stop-daemon -S -q -c 65534:65534 -x "$program" -- "$@" 2>/dev/null < /dev/null
}
content() { [ -f "$1" ] && [ ! -L "$1" ] && head -c 100 "$1"; }
echo "=== short test summary info ==="
status=0
report() { if [ "$2" = "$3" ]; then echo "PASSED $1"; else echo "FAILED $1"; status=1; fi; }
report test_square "$(as_nobody /app/square 12)" 144
report test_answer "$(content /app/answer)" "$(content "$TEST_DIR/expected")"
exit $status
"""
_CARELESS = f"""#!/bin/sh
sh "$TEST_DIR/inner.sh"
status=$?
mkdir -p /logs/verifier
if [ "$status" = 0 ]; then echo 1 > {REWARD}; else echo 0 > {REWARD}; fi
exit $status
"""

_PYTEST = '''"""Hidden tests of the agent's answer and program."""
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent


def test_answer():
    answer = pathlib.Path("/app/answer")
    assert answer.is_file() and not answer.is_symlink()
    assert answer.read_bytes()[:100] == (HERE / "expected").read_bytes()


def test_square():
    done = subprocess.run(
        ["/app/square", "12"], user=65534, group=65534, extra_groups=[], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, cwd="/", env={"PATH": "/usr/bin:/bin"},
    )
    assert done.stdout[:100] == b"144\\n"
'''
_UNNAMED = (
    _PYTEST.replace("import subprocess\n", "import subprocess\n\nimport pytest\n")
    .replace("def test_answer():", '@pytest.mark.parametrize("size", [100])\ndef test_answer(size):')
    .replace("answer.read_bytes()[:100]", "answer.read_bytes()[:size]")
    .replace("def test_square():", '@pytest.mark.parametrize("number", ["12"])\ndef test_square(number):')
    .replace('"12"], user', "number], user")
    .replace("    assert done", "    print(done.stdout.decode(errors='replace'))\n    assert done")
)
"""The same with parameters; what the agent's program printed is shown again by pytest."""
_RUN_PYTEST = """#!/bin/sh
exec env -i PATH=/usr/bin:/bin LANG=C.UTF-8 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 \\
    /usr/bin/python3 -I -S -P -c '
import sys
sys.path.append("/usr/lib/python3/dist-packages")
import pytest
sys.exit(pytest.main(sys.argv[1:]))' -p no:cacheprovider -rA "$TEST_DIR/test_outputs.py"
"""

_BASE = Task(
    id="answer",
    instruction="Write the answer to /app/answer and a program /app/square.",
    tests={"expected": b"the answer is 42\n"},
    expected_tests=EXPECTED,
    artifacts=("/app",),
    test_timeout_s=60.0,
    memory_mb=256,
    pids=64,
)
_PYTEST_FILES = {**_BASE.tests, "test_outputs.py": _PYTEST.encode()}


def shell_task(level: GradingLevel) -> Task:
    """Graded by a POSIX shell script, in the toolchain's shell and with its tools."""
    return replace(_BASE, run_tests=_SHELL, grading=level)


def harbor_task(level: GradingLevel, image: str) -> Task:
    """Graded by a stock Harbor script, in an image that has a Python and a pytest of its own."""
    return replace(_BASE, run_tests=HARBOR, tests=_PYTEST_FILES, image=image, grading=level, reports=REPORTS)


def project_task(level: GradingLevel, image: str) -> Task:
    """The same by a stock Terminal-Bench script."""
    return replace(_BASE, run_tests=PROJECT, tests=_PYTEST_FILES, image=image, grading=level)


def unnamed_task(level: GradingLevel, image: str) -> Task:
    """Like :func:`project_task`, but only its report says which tests there are."""
    tests = {**_BASE.tests, "test_outputs.py": _UNNAMED.encode()}
    return replace(project_task(level, image), tests=tests, expected_tests=())


def pytest_task(level: GradingLevel, image: str) -> Task:
    """Graded by pytest on the image's own Python, started so that it reads nothing outside its own folders."""
    return replace(_BASE, run_tests=_RUN_PYTEST, tests=_PYTEST_FILES, image=image, grading=level)


def careless_task(level: GradingLevel) -> Task:
    """A grader like many in public tasks: it runs the agent's program as root and leaves its verdict in a file too."""
    inner = _SHELL.replace("as_nobody /app/square", "/app/square")
    tests = {**_BASE.tests, "inner.sh": inner.encode()}
    return replace(_BASE, run_tests=_CARELESS, tests=tests, reports=(REWARD,), grading=level)


async def grade_after(pool: SandboxPool, task: Task, command: str) -> GradeResult:
    """Grade an agent that runs only this command in /app."""
    async with pool.acquire(task) as session:
        await session.run(f"cd /app && {command}", task.test_timeout_s)
        return await grade_sandbox(session, task)


def isolation_at(level: GradingLevel, of_script: Isolation = Isolation.TOOLCHAIN) -> Isolation:
    """Return the isolation of a grade at this level, for a script of that isolation."""
    return Isolation.LIVE if level is GradingLevel.LIVE else of_script
