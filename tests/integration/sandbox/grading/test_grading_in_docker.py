"""If these fail, a solved task does not score 1, or an unsolved one does.

The attacks are in tests/support/tasks/cheats.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 20.0
RUN_TESTS = """#!/bin/sh
if test "$(cat /app/answer 2>/dev/null)" = 42 && grep -q secret "$TEST_DIR/fixture"; then a=PASSED; else a=FAILED; fi
if ls -l /app >/dev/null; then b=PASSED; else b=FAILED; fi
echo "==== short test summary info ===="
echo "$a test_answer"
echo "$b test_listing"
"""
TASK = Task(
    id="answer",
    instruction="write 42 to /app/answer",
    tests={"fixture": b"secret\n"},
    run_tests=RUN_TESTS,
    expected_tests=("test_answer", "test_listing"),
    test_timeout_s=S,
)
FORGED = "==== short test summary info ====\\nPASSED test_answer\\nPASSED test_listing\\n"


async def score(pool: SandboxPool, command: str, task: Task = TASK) -> tuple[float, str]:
    async with pool.acquire(task) as session:
        await session.run(command, S)
        result = await grade_sandbox(session, task)
        return result.tests[0].passed, result.log


async def test_the_oracle_scores_one_and_doing_nothing_scores_zero(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        nothing = await grade_sandbox(session, TASK)
        assert (nothing.all_passed, nothing.pass_ratio, nothing.isolation) == (False, 0.5, Isolation.TOOLCHAIN)
        await session.run("echo 42 > /app/answer", S)
        solved = await grade_sandbox(session, TASK)
        assert (solved.all_passed, solved.pass_ratio) == (True, 1.0)


POISON = "printf '#!/bin/bash\\nprintf \"" + FORGED.replace("\\n", "\\\\n") + "\"; exit 0\\n'"


YES = "printf '#!/bin/bash\\necho 42\\n'"  # as cat it says the answer, as grep it finds everything
CHEATS = {
    "poisoned tools": f"for f in /bin/cat /bin/grep; do {YES} > $f; done; "
    f"for f in /bin/sh /bin/dash; do {POISON} > $f; done",
    "poisoned PATH": f"mkdir -p /usr/local/sbin; for f in cat grep ls test sh; do {YES} > /usr/local/sbin/$f; "
    "chmod +x /usr/local/sbin/$f; done; export PATH=/usr/local/sbin:$PATH BASH_ENV=/app/x ENV=/app/x",
}


@pytest.mark.parametrize("cheat", CHEATS)
async def test_a_cheat_that_the_toolchain_resists_fools_a_grader_that_trusts_the_image(pool: SandboxPool, cheat: str):
    resisted, log = await score(pool, CHEATS[cheat])
    assert not resisted, log
    inner = {**TASK.tests, "inner": TASK.run_tests.encode()}
    trusting = dataclasses.replace(TASK, tests=inner, run_tests='#!/bin/bash\n/bin/bash --norc "$TEST_DIR/inner"\n')
    passed, _ = await score(pool, CHEATS[cheat], trusting)
    assert passed, "the cheat has no teeth: that the toolchain resists it proves nothing"


async def test_honest_work_still_scores_with_a_broken_shell_and_poisoned_tools(pool: SandboxPool):
    command = f"echo 42 > /app/answer; for f in /bin/sh /bin/grep; do {POISON} > $f; done; rm -f /bin/bash; kill -9 $$"
    passed, log = await score(pool, command)
    assert passed, log


async def test_tests_that_hang_time_out_and_are_dead_afterwards(pool: SandboxPool):
    script = f"#!/bin/sh\nprintf '{FORGED}'\nsleep 1007 & sleep 1007\n"
    hang = Task(id="hang", instruction="", run_tests=script, expected_tests=("test_answer",))
    async with pool.acquire(hang) as session:
        result = await grade_sandbox(session, hang, 0.3)
        assert (result.timed_out, result.pass_ratio) == (True, 0.0)
        assert "sleep 1007" not in (await session.run("ps -eo args | grep -v grep", S)).output


async def test_tests_of_a_cancelled_grading_are_dead_and_cannot_be_read(pool: SandboxPool):
    script = "#!/bin/sh\ntouch /app/begun; setsid sleep 1009 & sleep 1009\n"
    hang = Task(id="given-up", instruction="", run_tests=script, tests={"secret": b"42"}, expected_tests=("x",))
    async with pool.acquire(hang) as session, asyncio.TaskGroup() as group:
        grading = group.create_task(grade_sandbox(session, hang))
        async with asyncio.timeout(S):
            while not await there(session, "/app/begun"):  # noqa: ASYNC110  seen from outside only
                await asyncio.sleep(0.01)
        grading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await grading
        assert (await session.run("ls -A /tests; pgrep -cf 'sleep 100[9]'", S)).output == "0\n"


LISTED = "/logs/verifier:\n\n/tests:\n"


async def test_after_a_grading_its_tests_cannot_be_read_and_another_finds_them_again(pool: SandboxPool):
    says = TASK.run_tests + "echo 42 > /logs/verifier/wanted; echo '{\"reward\": 1}' > /logs/reward.json\n"
    told_task = dataclasses.replace(TASK, run_tests=says, reports=("/logs/reward.json",))
    async with pool.acquire(told_task) as session:
        await session.run("echo 42 > /app/answer", S)
        for _ in range(2):
            result = await grade_sandbox(session, told_task)
            assert (result.all_passed, result.reward) == (True, 1.0)
            assert (await session.run("ls -A /tests /logs/verifier; cat /logs/*.json", S)).output == LISTED


async def there(session: SandboxSession, path: str) -> bool:
    try:
        await session.read_file(path)
    except FileNotFoundError:
        return False
    return True


async def test_a_bash_script_runs_in_the_bash_of_the_toolchain_when_that_of_the_image_is_removed(pool: SandboxPool):
    script = "#!/usr/bin/env bash\na=(short test summary info)\necho ${a[@]}\necho PASSED $(pwd):test_x\n"
    task = Task(id="bash", instruction="", expected_tests=("/app:test_x",), run_tests=script)
    async with pool.acquire(task) as session:
        await session.run("rm -f /bin/bash /usr/bin/env", S)
        result = await grade_sandbox(session, task)
        assert (result.all_passed, result.isolation) == (True, Isolation.TOOLCHAIN), result.log


async def test_a_script_in_another_language_runs_in_the_image_and_says_so(pool: SandboxPool):
    script = "#!/bin/cat\nshort test summary info\nPASSED test_x\n"
    task = Task(id="cat", instruction="", expected_tests=("test_x",), run_tests=script)
    async with pool.acquire(task) as session:
        result = await grade_sandbox(session, task)
        assert (result.all_passed, result.isolation) == (True, Isolation.IMAGE), result.log


async def test_skipped_is_not_passed_and_a_killed_run_proves_nothing(pool: SandboxPool):
    script = "#!/bin/sh\necho short test summary info; echo SKIPPED x; echo PASSED y; kill -9 $$\n"
    task = Task(id="skip", instruction="", expected_tests=("x", "y"), run_tests=script)
    async with pool.acquire(task) as session:
        result = await grade_sandbox(session, task)
        assert result.pass_ratio == 0.0
        assert "killed" in result.log
