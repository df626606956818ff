"""If these fail, an attempt that nobody could make is told as something else, and is not mended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from actors.engines.messages import EngineUnavailable
from launch.evaluation.solvers.solver import ScriptedSolverRun, SolverRun
from launch.evaluation.standalone.attempt_runner import EvaluationContext, run_attempt
from protocol.evaluation import AttemptId, AttemptRecord, AttemptStage
from protocol.trajectory import EpisodeStatus, InfraFailure, TestResult
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.tasks.task import Task
from tests.support.actors.episodes import BINARY_REWARD
from tests.support.actors.worker_specs import worker_spec

if TYPE_CHECKING:
    from sandbox.pool.sandbox_pool import SandboxPool

TASK = Task("t", "Answer.", answer="7")


@dataclass
class FakeAttemptPool:
    """Its sandboxes are nothing; it fails where it is told to."""

    opens: Exception | None = None
    closes: Exception | None = None
    closed: int = 0

    async def open(self, task: Task, deadline_s: float, programs: object) -> object:
        del task, deadline_s, programs
        if self.opens is not None:
            raise self.opens
        return object()

    async def close(self, session: object) -> None:
        del session
        self.closed += 1
        if self.closes is not None:
            raise self.closes


async def attempt(pool: FakeAttemptPool, acts: Exception | None = None) -> AttemptRecord:
    async def act(_: Task) -> None:
        if acts is not None:
            raise acts

    def solver(*_: object) -> AbstractContextManager[SolverRun]:
        return nullcontext(ScriptedSolverRun(act, final_answer="\\boxed{7}"))

    ground = EvaluationContext(
        cast("SandboxPool", pool),
        worker_spec(acquire_timeout_s=10.0),
        {},
        solver,
        BINARY_REWARD,
    )
    record, trajectory = await run_attempt(AttemptId("t", 0), TASK, ground)
    assert isinstance(trajectory, Mapping)
    return record


async def test_an_attempt_ends_with_a_verdict_and_a_closed_sandbox() -> None:
    record = await attempt(pool := FakeAttemptPool())
    assert record.failure is None
    assert record.verdict is not None
    assert (record.verdict.passed, record.verdict.status) == (True, EpisodeStatus.COMPLETED)
    assert record.verdict.tests == (TestResult("answer", True),)
    assert pool.closed == 1


@pytest.mark.parametrize(
    ("pool", "acts", "stage", "kind"),
    [
        (FakeAttemptPool(opens=SandboxStartError("no daemon")), None, AttemptStage.RESET, InfraFailure.SANDBOX_START),
        (FakeAttemptPool(), EngineUnavailable("gone"), AttemptStage.AGENT, InfraFailure.ENGINE),
        (
            FakeAttemptPool(closes=SandboxLost("gone too")),
            EngineUnavailable("gone"),
            AttemptStage.AGENT,
            InfraFailure.ENGINE,
        ),
        (FakeAttemptPool(closes=SandboxLost("gone")), None, AttemptStage.CLEAN_UP, InfraFailure.SANDBOX_LOST),
        (FakeAttemptPool(closes=TimeoutError()), None, AttemptStage.CLEAN_UP, InfraFailure.DEADLINE),
    ],
    ids=["reset", "agent", "agent and clean-up", "clean-up", "slow clean-up"],
)
async def test_a_failed_attempt_records_the_stage_and_kind_of_its_first_failure(
    pool: FakeAttemptPool, acts: Exception | None, stage: AttemptStage, kind: InfraFailure
) -> None:
    record = await attempt(pool, acts)
    assert record.failure is not None
    assert (record.failure.stage, record.failure.kind) == (stage, kind)
    assert (record.verdict is not None) == (stage is AttemptStage.CLEAN_UP)
    assert pool.closed == (stage is not AttemptStage.RESET)
