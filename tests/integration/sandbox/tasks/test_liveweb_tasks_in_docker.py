"""If these fail, a task of the web is graded by something else than its answer and its sites' state, or an agent reads
that state past the pages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import SERVICE_LABEL
from sandbox.errors import SandboxLost, TaskFault
from sandbox.grading.grader import grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.formats.liveweb.generator import make_web_row
from sandbox.tasks.formats.liveweb.rows import FORMAT
from sandbox.tasks.formats.rows import JsonRow, read_row
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.sites.shop_data import CUSTOMERS
from sandbox.tasks.task import Task
from tests.support.tasks.web_client import CLIENT

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
PYTHON = "/.sbx/verify/env/bin/python3 -I"


def read_task(row: JsonRow) -> Task:
    problems = TaskProblems(Path("row"))
    task = read_row(FORMAT, row, problems)
    assert not problems.found
    return task


async def request(session: SandboxSession, *requests: Sequence[str]) -> list[str]:
    """Return the page after each request ``(path, form)`` of one browser without scripts."""
    await session.write_files({"/tmp/client.py": CLIENT.encode()})
    done = await session.run(f"{PYTHON} /tmp/client.py '{json.dumps(requests)}'", S)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


async def test_an_order_in_the_shop_is_what_its_tests_find_in_the_shop(pool: SandboxPool):
    row: Any = make_web_row("shop-buy", 1)
    task = read_task(row)
    ((user, address, product, quantity),) = row["state"][0]["rows"]
    password = dict(CUSTOMERS)[user]
    async with pool.acquire(task) as session:
        pages = await request(
            session,
            ("http://shop:8000/login", f"user={user}&password={password}"),
            ("http://shop:8000/cart/add", f"product={product}&quantity={quantity}"),
            ("http://shop:8000/checkout", f"address={address}"),
        )
        assert "Thank you for your order" in pages[-1]
        assert (await request(session, ("http://shop:8000/-/state", json.dumps({"sql": "SELECT 1"})))) == ["404"]
        assert (await session.run("ls /tests /solution 2>&1; env", S)).output.find("SECRET") == -1
        graded = await grade_sandbox(session, task)
    assert ({test.name for test in graded.tests}, graded.score, graded.all_passed) == ({"state"}, 1.0, True)


@pytest.mark.slow
@pytest.mark.parametrize("site", ["wiki", "dashboard"])
async def test_every_site_of_ours_answers_and_an_answer_is_graded(pool: SandboxPool, site: str):
    row: Any = make_web_row({"wiki": "wiki-largest", "dashboard": "dashboard-mean-cpu"}[site], 1)
    task = read_task(row)
    answer = row["actions"][-1]["params"]["answer"]
    for given, score in ((f"9{answer}", 0.0), (answer, 1.0)):
        async with pool.acquire(task) as session:
            assert "<h1>" in (await request(session, (f"http://{site}:8000/", "")))[0]
            await session.write_files({f"{task.workdir}/answer.txt": given.encode()})
            assert (await grade_sandbox(session, task)).score == score


@pytest.mark.slow
async def test_a_site_that_no_longer_answers_is_a_lost_sandbox_and_no_reward(pool: SandboxPool, engine: DockerEngine):
    task = read_task(make_web_row("wiki-restore", 1))
    async with pool.acquire(task) as session:
        service = (await engine.containers({SERVICE_LABEL: "wiki"}))[0]
        await engine.remove(service.id)
        with pytest.raises(SandboxLost, match="found no site that answers"):
            await grade_sandbox(session, task)


@pytest.mark.slow
async def test_a_site_that_does_not_start_is_no_sandbox(pool: SandboxPool):
    task = read_task(make_web_row("wiki-restore", 1))
    broken = tuple(dataclasses.replace(each, env={}) for each in task.services)
    with pytest.raises(TaskFault, match="service wiki exited with 1 before the agent started"):
        async with pool.acquire(dataclasses.replace(task, services=broken)):
            pass
