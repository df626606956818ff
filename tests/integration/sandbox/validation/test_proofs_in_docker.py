"""If these fail, a task with a failing oracle, a task that is already solved or a program that only claims to pass
counts as proved."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.errors import SandboxLost
from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.code_rows import BASE_IMAGE_MODULES
from sandbox.tasks.formats.generated.generator import make_task
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TaskService
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.proofs import ProofEnvironment, ProofVerdict, TaskProof, pool_proof_environment, prove_tasks
from tests.support.tasks import code_rows

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
GOOD = make_task("sort", 1, TaskSplit.HELD_OUT)
WITH_FILES = dataclasses.replace(
    GOOD,
    id="files",
    solution="#!/bin/bash\n[[ $PWD = /app ]] && sh /solution/deep/really.sh\n",
    solution_files={"deep/really.sh": GOOD.solution.encode()},
)
SERVES = Task(
    "serves",
    "Serve a page.",
    run_tests='#!/bin/sh\necho "=== short test summary info ==="\n'
    '[ "$(wget -q -O - http://127.0.0.1:8123/page)" = hello ] && echo PASSED page || echo FAILED page\n',
    solution="echo hello > /app/page; /.sbx/busybox httpd -p 127.0.0.1:8123 -h /app\n",
    grading=GradingLevel.LIVE,
)
DEAD = TaskService("db", command=("/.sbx/busybox", "false"), healthcheck="false")
TASKS = [
    (GOOD, ProofVerdict.PROVED),
    (WITH_FILES, ProofVerdict.PROVED),
    (dataclasses.replace(GOOD, id="wrong", solution="false\n"), ProofVerdict.ORACLE_FAILS),
    (dataclasses.replace(GOOD, id="endless", solution="sleep 1000\n", agent_timeout_s=0.5), ProofVerdict.ORACLE_FAILS),
    (dataclasses.replace(GOOD, id="solved", setup=GOOD.solution), ProofVerdict.NOOP_PASSES),
    (dataclasses.replace(GOOD, id="no-oracle", solution=""), ProofVerdict.SKIPPED),
    (dataclasses.replace(GOOD, id="no-tests", run_tests=""), ProofVerdict.SKIPPED),
    (dataclasses.replace(GOOD, id="beside", services=(DEAD,)), ProofVerdict.BROKEN),
    (dataclasses.replace(GOOD, id="setup", setup="echo why; exit 7"), ProofVerdict.BROKEN),
    (dataclasses.replace(GOOD, id="level", grading=GradingLevel.COMMIT), ProofVerdict.PROVED),
    (SERVES, ProofVerdict.PROVED),
    (dataclasses.replace(SERVES, id="killed", grading=GradingLevel.SAME), ProofVerdict.ORACLE_FAILS),
]


async def test_many_tasks_are_tried_at_once_and_each_gets_a_separate_verdict(pool: SandboxPool):
    seen: list[TaskProof] = []
    proofs = await prove_tasks([task for task, _ in TASKS], pool_proof_environment(pool), 4, seen.append)
    assert [(proof.task, proof.verdict) for proof in proofs] == [(task.id, verdict) for task, verdict in TASKS]
    assert sorted(seen, key=lambda proof: proof.task) == sorted(proofs, key=lambda proof: proof.task)
    why = {proof.task: proof.why for proof in proofs}
    assert proofs[0].oracle == 1.0
    assert "tests pass without any work" in why[GOOD.id]
    assert "the solution exited with 1" in why["wrong"]
    assert "exceeded its limit of 0.5 s" in why["endless"]
    assert why["killed"] == (
        "page failed, but not beside what the solution leaves running: write `grading: live` in its longshore.yaml"
    )
    assert why["beside"].startswith("service db e")
    assert "exited with 7: 'why" in why["setup"]


async def test_a_task_is_tried_in_the_image_that_it_builds(pool: SandboxPool):
    dockerfile = f"FROM {pool.host.base_image}\nENV BUILT=1\n".encode()
    task = dataclasses.replace(GOOD, id="built", build=ImageBuild({"Dockerfile": dockerfile}))
    failed = pool.images.statistics().failed
    (proof,) = await prove_tasks([task], pool_proof_environment(pool), 1)
    assert proof.verdict is ProofVerdict.PROVED, proof
    assert pool.images.statistics().failed == failed
    assert [name for name in pool.images.last_used() if name.startswith("longshore/build:")]


async def test_a_lost_sandbox_gives_no_verdict_and_does_not_stop_other_proofs(pool: SandboxPool):
    here, most = 0, 0

    @asynccontextmanager
    async def acquire(task: Task) -> AsyncGenerator[SandboxSession]:
        nonlocal here, most
        if task.id == "lost":
            raise SandboxLost("the daemon is gone")
        here += 1
        most = max(most, here)
        async with pool.acquire(task) as session:
            yield session
        here -= 1

    some = [dataclasses.replace(GOOD, id=name) for name in ("a", "lost", "b")]
    proofs = await prove_tasks(some, ProofEnvironment(acquire, grade_sandbox), 2)
    assert [proof.verdict for proof in proofs] == [ProofVerdict.PROVED, ProofVerdict.LOST, ProofVerdict.PROVED]
    assert "the daemon is gone" in proofs[1].why
    assert most <= 2


ROWS = {
    "calls": {"inputs": [[2, 3], [4, 5]], "outputs": [5, [9]], "fn_name": "add"},
    "prints": {"inputs": ["2 3\n", "4 5\n"], "outputs": ["5", "9\n"]},
    "asserts": ["assert add(2, 3) == 5", "x = add(4, 5)\nassert x == 9 and max(x, 1) == 9"],
}
HONEST = "def add(a, b):\n    return a + b\nif __name__ == '__main__':\n    print(add(*map(int, input().split())))\n"
CHEATS = {
    "nothing": "",
    "wrong": HONEST.replace("a + b", "a - b"),
    "claims": "print('short test summary info\\nPASSED case_0\\nPASSED case_1')\n",
    "leaves": "import os\nos._exit(0)\n",
    "always equal": "class E(int):\n    __eq__ = lambda s, o: True\ndef add(a, b):\n    return E()\n",
    "reads the tests": "import sys\nfor path in ('/tests/cases.txt', '/proc/%d/mem' % __import__('os').getppid()):\n"
    "    print(open(path).read())\n",
    "writes the tests": "open('/tests/cases.txt', 'w').write('[]')\n",
    "kills its tests": "import os, signal\nos.kill(os.getppid(), 9)\n",
}


@pytest.mark.first_case
@pytest.mark.parametrize("kind", ROWS)
async def test_a_program_scores_only_by_its_computed_results(pool: SandboxPool, tmp_path: Path, kind: str):
    prompt = [{"role": "user", "content": "Add two numbers."}]
    row = {"data_source": "x", "prompt": prompt, "reward_model": {"ground_truth": ROWS[kind]}}
    (tmp_path / "c.jsonl").write_text(json.dumps(row))
    (task,) = load_tasks(tmp_path / "c.jsonl").tasks
    scores: dict[str, float] = {}
    async with pool.acquire(task) as session:
        for name, program in {**CHEATS, "honest": HONEST}.items():
            await session.write_files({"/app/solution.py": program.encode()})
            result = await grade_sandbox(session, task)
            scores[name] = result.pass_ratio
            assert len(result.tests) == 2, result.log
    assert scores == {"honest": 1.0} | dict.fromkeys(CHEATS, 0.0)


AS_IN_THE_WILD = [
    *("counter", "endless", "lambda", "class", "linked", "in place", "own error", "human eval", "levels"),
    *("object of a function's", "own list", "a class to be checked", "functions with a capital", "threads", "files"),
]
BELIEVED = [
    *("equal to all", "leaves by its own", "talks on its own", "empties what is sorted", "a tuple with a method"),
    *("ends a map", "ends a zip", "a type for its values", "an area that is near", "says a tuple with a method"),
    *("a capital that is near", "a capital with items", "a capital with a list's method", "a capital to be checked"),
    *("makes what is wanted", "links its file to the tests"),
]


@pytest.mark.parametrize("name", [*AS_IN_THE_WILD, *BELIEVED])
async def test_values_that_are_not_literals_reach_the_tests_and_forged_claims_do_not(
    pool: SandboxPool, tmp_path: Path, name: str
):
    prompt = [{"role": "user", "content": "Write it."}]
    row = code_rows.ROWS.get(name)
    if not row:
        tests, cheat, *entry = code_rows.CHEATS[name]
        row = code_rows.CodeRow(tests, "", cheat, *entry)
    columns = {"prompt": prompt, "reward_model": {"ground_truth": row.tests}, "extra_info": {"entry_point": row.entry}}
    (tmp_path / "c.jsonl").write_text(json.dumps(columns))
    (task,) = load_tasks(tmp_path / "c.jsonl").tasks
    async with pool.acquire(task) as session:
        for program, score in {row.wrong: 0.0, **({row.right: 1.0} if row.right else {})}.items():
            await session.write_files({"/app/solution.py": program.encode()})
            result = await grade_sandbox(session, task)
            assert result.score == score, result.log


async def test_the_python_of_the_base_image_has_the_declared_modules(pool: SandboxPool):
    """``validate`` names the rows whose tests need other modules."""
    names = (BASE_IMAGE_MODULES | sys.stdlib_module_names) - {"antigravity"}
    known = sorted(each for each in names if not each.startswith("_"))
    program = f"for name in {known}:\n    try: __import__(name)\n    except ImportError: print('lacks:' + name)\n"
    async with pool.acquire(Task("modules", "x")) as session:
        await session.write_files({"/tmp/program.py": program.encode()})
        done = await session.run("python3 -W ignore /tmp/program.py", 60)
    assert done.exit_code == 0
    lacked = {line.removeprefix("lacks:") for line in done.output.splitlines() if line.startswith("lacks:")}
    assert set(known) - lacked == BASE_IMAGE_MODULES
