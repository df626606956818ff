"""If these fail, a program that tests run as nobody can read the expected results and print them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.grader import Isolation
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from tests.support.sandbox.python_image import python_image
from tests.support.tasks.cheats.graders import grade_after, isolation_at
from tests.support.tasks.public_test_scripts import HARBOR, PROJECT, REPORTS

pytestmark = [
    pytest.mark.first_case,
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("verifier_half"),
]
S = 60.0

SQUARES = b"""
import subprocess, pytest

@pytest.mark.parametrize(("n", "wanted"), [("12", "144"), ("7", "49")])
def test_square(n, wanted):
    done = subprocess.run(["/app/square", n], user=65534, capture_output=True, text=True)
    assert done.stdout.strip() == wanted
"""
OF_THE_ID = r"""printf '#!/bin/bash\np=${PYTEST_CURRENT_TEST#*\[}; p=${p%%%%\]*}; echo ${p#*-}\n' > square"""
SQUARE = r"printf '#!/bin/bash\necho $(($1 * $1))\n' > square"
TASK = Task("square", "", run_tests=PROJECT, tests={"test_outputs.py": SQUARES}, artifacts=("/app",), test_timeout_s=S)
STOCK = {"project": TASK, "harbor": replace(TASK, run_tests=HARBOR, reports=REPORTS)}


@pytest.mark.parametrize("level", GradingLevel)
@pytest.mark.parametrize("stock", STOCK)
async def test_a_program_that_answers_from_the_id_of_its_test_scores_nothing(
    pool: SandboxPool, stock: str, level: GradingLevel
):
    task = replace(STOCK[stock], grading=level)
    result = await grade_after(pool, task, f"{OF_THE_ID}; chmod 755 square")
    assert (result.score, result.isolation) == (0.0, isolation_at(level)), result.log
    result = await grade_after(pool, task, f"{SQUARE}; chmod 755 square")
    assert (result.score, result.isolation) == (1.0, isolation_at(level)), result.log


SPY = """cat > spy <<'E'
#!/usr/bin/python3
import glob, os
said = [os.getcwd(), *(f"{name}={value}" for name, value in os.environ.items())]

def look(read):
    try:
        said.append(str(read()))
    except OSError:
        pass

for fd in range(64):
    look(lambda: os.readlink(f"/proc/self/fd/{fd}"))
    look(lambda: os.pread(fd, 9999, 0))
    look(lambda: os.pread(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK), 9999, 0))
for path in glob.glob("/proc/[0-9]*/cmdline"):
    look(lambda: open(path).read())
open("/app/said", "a").write("\\n".join(said))
E
chmod 755 spy; touch said; chmod 777 said"""
SPIED = b"""
import os, subprocess, sys, unittest
from pathlib import Path
import pytest

def spied(**how):
    Path("/app/said").write_text("")
    print("secret")
    print("secret", file=sys.stderr)
    subprocess.run(["/app/spy"], user=65534, group=65534, extra_groups=[], check=True, **how)
    said = Path("/app/said").read_text()
    assert "secret" not in said
    return said

@pytest.fixture
def around():
    assert "PYTEST_CURRENT_TEST=test_outputs.py::test_parameter (setup)" in spied()
    yield
    assert "PYTEST_CURRENT_TEST=test_outputs.py::test_parameter (teardown)" in spied(stdout=sys.stdout)

@pytest.mark.parametrize("wanted", ["secret", "x[secret]::y"])
def test_parameter(wanted, around, tmp_path, capfd):
    said = spied(cwd=tmp_path)
    assert "PYTEST_CURRENT_TEST=test_outputs.py::test_parameter (call)" in said
    assert "/test_parameter0" in said or "/test_parameter1" in said
    subprocess.run(["echo", "of a child"])
    print("of the test")
    with capfd.disabled():
        spied()
    assert capfd.readouterr() == ("secret\\nof a child\\nof the test\\n", "secret\\n")

class Case(unittest.TestCase):
    def setUp(self):
        assert "PYTEST_CURRENT_TEST=test_outputs.py::Case::test_case (call)" in spied()

    def test_case(self):
        assert "PYTEST_CURRENT_TEST=test_outputs.py::Case::test_case (call)" in spied()
"""
ONE = 'uv run pytest "$TEST_DIR/test_outputs.py::test_parameter[secret]" "$TEST_DIR/test_outputs.py::Case" -rA'


async def test_a_program_run_by_a_test_cannot_see_the_id_arguments_or_output_of_the_test(pool: SandboxPool):
    task = replace(TASK, image=python_image(pool.host), tests={"test_outputs.py": SPIED})
    result = await grade_after(pool, task, SPY)
    assert (result.score, result.isolation, len(result.tests)) == (1.0, Isolation.SHARED, 3), result.log
    one = PROJECT.replace("uv run pytest $TEST_DIR/test_outputs.py -rA", ONE)
    assert one != PROJECT
    result = await grade_after(pool, replace(task, run_tests=one), SPY)
    assert (result.score, result.isolation, len(result.tests)) == (1.0, Isolation.SHARED, 2), result.log


SHELL = """#!/bin/bash
echo "=== short test summary info ==="
ok=1
while read -r n wanted; do
    got=$(start-stop-daemon -S -q -c 65534:65534 -x /app/spy -- "$n" < /dev/null 2> /dev/null)
    case "$(cat /app/said)" in *secret*) ok=0 ;; esac
done < $TEST_DIR/cases
if [ "$ok" = 1 ] && [ -s /app/said ]; then echo PASSED test_spied; else echo FAILED test_spied; exit 1; fi
"""


async def test_a_program_started_by_a_script_as_documented_cannot_see_expected_results(pool: SandboxPool):
    tests = {"cases": b"12 secret\n7 secret\n"}
    task = replace(TASK, image=python_image(pool.host), run_tests=SHELL, tests=tests, expected_tests=("test_spied",))
    result = await grade_after(pool, task, SPY)
    assert (result.score, result.isolation) == (1.0, Isolation.TOOLCHAIN), result.log


LURKS = """cat > prog <<'E'
#!/usr/bin/python3
import glob, os, sys, time
try:
    os.mkfifo("/app/out")
except FileExistsError:
    sys.exit()
if os.fork():
    os._exit(7)
os.setsid()
for fd in range(3):
    os.dup2(os.open("/dev/null", os.O_RDWR), fd)
for _ in range(600):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        words = open(path).read().split("\\0")
        if words[0].endswith("grep"):
            open("/app/out", "w").write(words[2] + "\\n")
            os._exit(0)
    time.sleep(0.005)
E
chmod 755 prog; chmod 777 /app"""
WRITES = "printf '#!/bin/sh\\necho 144 > /app/out\\nexit 7\\n' > prog; chmod 755 prog; chmod 777 /app"
LOOKS = """#!/bin/bash
echo "=== short test summary info ==="
timeout -k 1 30 start-stop-daemon -S -q -c 65534:65534 -x /app/prog < /dev/null > /dev/null 2> /dev/null
code=$?
[ "$code" = 7 ] && timeout 5 grep -qx 144 /app/out || { echo FAILED test_file; exit 1; }
echo PASSED test_file
"""


@pytest.mark.parametrize(("command", "score"), [(LURKS, 0.0), (WRITES, 1.0)])
async def test_background_processes_of_a_program_are_dead_before_its_file_is_checked(
    pool: SandboxPool, command: str, score: float
):
    task = replace(TASK, image=python_image(pool.host), run_tests=LOOKS, tests={})
    result = await grade_after(pool, task, command)
    assert (result.score, result.isolation) == (score, Isolation.TOOLCHAIN), result.log
