"""If these fail, an error or half a patch is trained on as what an attempt changed."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, nullcontext

import pytest
import pytest_asyncio

from actors.rollout.sandbox_terminal import SandboxTerminal
from launch.evaluation.results.swe_synth_samples import PATCH
from launch.evaluation.solvers.solver import ScriptedSolverRun
from launch.evaluation.standalone.attempt_runner import EvaluationContext, run_attempt
from protocol.evaluation import AttemptId, AttemptRecord
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset
from sandbox.tasks.task import Task
from tests.support.actors.episodes import BINARY_REWARD
from tests.support.actors.worker_specs import worker_spec

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
TASK = load_labelled_dataset(BUILT_IN_CATALOG, "longshore-swe").tasks[10]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(docker_engine: SandboxHost) -> AsyncGenerator[SandboxPool]:
    settings = PoolSettings(name=f"test-patches-{os.getpid()}", run_id="test", capacity=1)
    async with SandboxPool(settings, docker_engine) as opened:
        yield opened


async def attempt(pool: SandboxPool, commands: str) -> tuple[AttemptRecord, object]:
    def solver(
        _task: Task, _attempt: AttemptId, terminal: SandboxTerminal, _observer: object
    ) -> AbstractContextManager[ScriptedSolverRun]:
        async def act(_: Task) -> None:
            assert (await terminal.session.run(commands, 30.0)).exit_code == 0

        return nullcontext(ScriptedSolverRun(act))

    context = EvaluationContext(pool, worker_spec(acquire_timeout_s=60.0), {}, solver, BINARY_REWARD)
    record, trajectory = await run_attempt(AttemptId(TASK.id, 0), TASK, context)
    assert record.failure is None
    return record, trajectory.get(PATCH)


async def test_the_patch_of_an_attempt_is_kept(pool: SandboxPool):
    record, patch = await attempt(pool, "printf 'new\\0' > note.txt")
    assert record.remark == ""
    assert "\n+new\0\n" in str(patch)


@pytest.mark.parametrize(
    ("commands", "says"),
    [
        ("rm /usr/bin/diff", "not found"),
        ("rm -r /var/lib/start/a", "can't cd"),
        ("printf '\\351\\n' > note.txt", "can't decode byte"),
        ("head -c 2000000 /dev/zero | tr '\\0' x > long.txt", "longer than 1 MiB"),
    ],
)
async def test_what_is_no_whole_patch_is_a_remark(pool: SandboxPool, commands: str, says: str):
    record, patch = await attempt(pool, commands)
    assert patch is None
    assert record.remark.startswith("there is no patch: ")
    assert says in record.remark
    assert "\n" not in record.remark
