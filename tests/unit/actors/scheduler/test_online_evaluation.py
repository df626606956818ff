"""If these fail, an evaluation beside training mixes weights, keeps training's episodes from beginning, or has to begin
anew after a crash."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.evaluation.plan import EvaluationPlan, OnlineEvaluationPlan
from actors.scheduler.evaluation.requests import EvaluationRequests
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.scheduler.settings import SchedulerRunState, SchedulerSettings, SchedulerSpec
from protocol.errors import InfraError
from protocol.evaluation import AttemptRecord, read_attempts
from protocol.staleness import AdmissionLimit, AdmissionMode
from protocol.trajectory import TRAIN_PURPOSE, GroupId, InfraFailure, RolloutRequest
from protocol.weights import WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_buffer import FakeBuffer
from tests.support.runs.attempts import attempt_for_request

VERSION = WeightVersion(8)
LIMIT = 2
PLAN = EvaluationPlan("step-000008", ("a", "b"), attempts=2, greedy=1, seed=3)
SOON_S = 30.0
MANY = 99


def plan_in(folder: Path) -> OnlineEvaluationPlan:
    return OnlineEvaluationPlan(PLAN, VERSION, folder / "attempts.jsonl")


class Told:
    """Events."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __call__(self, kind: str, **_: object) -> None:
        self.kinds.append(kind)


def spec_in(folder: Path) -> SchedulerSpec:
    return SchedulerSpec(
        run_id="run",
        run_dir=folder,
        node="node-0",
        tasks=("x", "y"),
        settings=SchedulerSettings(groups_per_step=1, group_size=2, replacement_limit=LIMIT),
        admission=AdmissionLimit(AdmissionMode.SYNC, 1, 1),
        tuning=SchedulerSettings().tuning(publish_every=1),
        total_steps=9,
        request_deadline_s=100.0,
        seed=0,
        order=TaskOrder.LISTED,
    )


def evaluation_in(folder: Path, reports: Told | None = None) -> EvaluationRequests:
    return EvaluationRequests.open_online(plan_in(folder), spec_in(folder), reports or Told())


def attempt_of(request: RolloutRequest, *versions: int) -> AttemptRecord:
    return attempt_for_request(request, *(versions or (VERSION,)))


def test_a_restarted_evaluation_continues_after_the_recorded_attempts(tmp_path: Path) -> None:
    first = evaluation_in(tmp_path)
    done, lost, *_ = first.assign_requests("w#1", 3, 0.0)
    first.report_evaluated(done, attempt_of(done))
    with (tmp_path / "attempts.jsonl").open("ab") as file:
        file.write(b'{"task": "a", "num')  # killed while it wrote
    second = evaluation_in(tmp_path)
    remaining = second.assign_requests("w#2", MANY, 0.0)
    assert len(remaining) == second.tracker.total - 1
    assert lost in remaining
    for request in remaining:
        second.report_evaluated(request, attempt_of(request))
    assert second.tracker.finished.is_set()
    assert evaluation_in(tmp_path).tracker.attempts() == second.tracker.attempts()


@pytest.mark.parametrize("line", [b'{"task": "a"\x00', b'{"task": "a"}', b"[]", b'{"task": "a", "number": "0"}'])
def test_an_attempt_with_a_damaged_record_is_repeated(line: bytes, tmp_path: Path) -> None:
    """Training would end for a line of an evaluation beside it."""
    first = evaluation_in(tmp_path)
    for request in first.assign_requests("w#1", 2, 0.0):
        first.report_evaluated(request, attempt_of(request))
    _, kept = (tmp_path / "attempts.jsonl").read_bytes().splitlines()
    (tmp_path / "attempts.jsonl").write_bytes(line + b"\n" + kept + b"\n")
    second = evaluation_in(tmp_path)
    assert len(second.tracker.finished_attempts) == 1
    assert len(second.assign_requests("w#2", MANY, 0.0)) == second.tracker.total - 1


def test_an_attempt_with_other_weights_is_rejected_and_repeated(tmp_path: Path) -> None:
    reports = Told()
    evaluation = evaluation_in(tmp_path, reports)
    (request,) = evaluation.assign_requests("w#1", 1, 0.0)
    evaluation.report_evaluated(request, attempt_of(request, VERSION, VERSION + 1))
    assert evaluation.tracker.finished_attempts == {}
    assert reports.kinds == ["episode.failed", "rollout_request.reissued"]
    (again,) = evaluation.assign_requests("w#1", 1, 0.0)
    assert again == replace(request, attempt=1)


def test_an_attempt_without_sampled_tokens_counts(tmp_path: Path) -> None:
    evaluation = evaluation_in(tmp_path)
    (request,) = evaluation.assign_requests("w#1", 1, 0.0)
    evaluation.report_evaluated(request, replace(attempt_of(request), versions=()))
    assert len(evaluation.tracker.finished_attempts) == 1


def test_an_attempt_that_cannot_be_stored_can_be_reported_failed_and_is_reissued(tmp_path: Path) -> None:
    """Otherwise it would never be requested again, and the evaluation would never end."""
    evaluation = evaluation_in(tmp_path)
    (request,) = evaluation.assign_requests("w#1", 1, 0.0)
    (tmp_path / "attempts.jsonl").mkdir()
    with pytest.raises(OSError, match="attempts"):
        evaluation.report_evaluated(request, attempt_of(request))
    evaluation.report_failed(request, InfraFailure.UNEXPECTED, "no space")
    assert evaluation.assign_requests("w#1", 1, 0.0) == [replace(request, attempt=1)]


def test_repeated_infrastructure_failures_of_a_task_end_the_evaluation_with_the_last_reason(tmp_path: Path) -> None:
    evaluation = evaluation_in(tmp_path)
    for _ in range(LIMIT + 1):
        (request,) = evaluation.assign_requests("w#1", 1, 0.0)
        evaluation.report_failed(request, InfraFailure.SANDBOX_START, "the daemon is gone")
    assert evaluation.tracker.finished.is_set()
    assert "sandbox_start: the daemon is gone" in str(evaluation.tracker.failure)


def test_a_faulty_task_is_excluded_and_the_evaluation_continues(tmp_path: Path) -> None:
    evaluation = evaluation_in(tmp_path, reports := Told())
    late, request, *_ = [each for each in evaluation.assign_requests("w#1", MANY, 0.0) if each.task == "a"]
    for _ in range(LIMIT):
        evaluation.report_failed(request, InfraFailure.TASK_FAULT, "no build")
        (request,) = evaluation.assign_requests("w#1", MANY, 0.0)
    evaluation.report_failed(request, InfraFailure.TASK_FAULT, "no build")
    evaluation.report_evaluated(late, attempt_of(late))
    assert (evaluation.tracker.excluded_tasks, evaluation.tracker.total) == ({"a"}, 3)
    assert reports.kinds.count("alert.raised") == 1
    assert evaluation.tracker.finished_attempts == evaluation_in(tmp_path).tracker.finished_attempts == {}


@given(st.lists(st.tuples(st.sampled_from(["take", "done", "failed", "worker", "late", "crash"]), st.integers(0, 5))))
def test_each_attempt_is_counted_exactly_once_after_any_failures(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[tuple[str, int]]
) -> None:
    """Every attempt is done, waits, or is with a worker: so it is over exactly when all are there."""
    folder = tmp_path_factory.mktemp("evaluation")
    evaluation, held, incarnation, now = evaluation_in(folder), list[RolloutRequest](), 0, 0.0
    counted: dict[tuple[int, int], AttemptRecord] = {}
    for happening, number in happenings:
        now += 1.0
        if happening == "take":
            held += evaluation.assign_requests(f"w#{incarnation}", number, now)
        elif happening == "done" and held:
            request = held.pop(number % len(held))
            evaluation.report_evaluated(request, attempt_of(request))
        elif happening == "failed" and held:
            evaluation.report_failed(held.pop(number % len(held)), InfraFailure.ENGINE, "")
        elif happening == "worker":
            incarnation += 1
            evaluation.reclaim_from_worker("w", "", except_incarnation=f"w#{incarnation}")
        elif happening == "late":
            now += 200.0
            evaluation.reissue_overdue(now)
        elif happening == "crash":
            evaluation = evaluation_in(folder)
        assert counted.items() <= evaluation.tracker.finished_attempts.items(), "an attempt was forgotten or made anew"
        counted = dict(evaluation.tracker.finished_attempts)
        if evaluation.tracker.failure is not None:
            return
    now += 200.0
    evaluation.reissue_overdue(now)
    evaluation.reclaim_from_worker("w", "", except_incarnation="w#last")
    for _ in range(LIMIT + 1):
        for request in evaluation.assign_requests("w#last", MANY, now):
            evaluation.report_evaluated(request, attempt_of(request))
    assert evaluation.tracker.finished.is_set()
    assert len(read_attempts(folder / "attempts.jsonl")) == evaluation.tracker.total or evaluation.tracker.failure


def scheduler_in(folder: Path) -> RolloutScheduler:
    return RolloutScheduler(spec_in(folder), LocalRemote(FakeBuffer()))


async def test_training_and_evaluation_workers_get_only_their_own_requests(tmp_path: Path) -> None:
    """Otherwise training would wait behind an evaluation, or be given tokens of the wrong weights."""
    scheduler = scheduler_in(tmp_path)
    await scheduler.set_run_state(SchedulerRunState(training=True))
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_online_evaluation(plan_in(tmp_path)))
        requests = await scheduler.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        training = await scheduler.acquire_requests("worker", "1", MANY, SOON_S)
        assert {request.purpose for request in requests} == {PLAN.name}
        assert {request.purpose for request in training} == {TRAIN_PURPOSE}
        assert len(training) == 2
        assert await scheduler.acquire_evaluation_requests("evaluation-worker", "1", MANY, 0.0) == []
        await scheduler.set_run_state(SchedulerRunState(training=False))
        for request in requests:
            await scheduler.report_evaluated(request, attempt_of(request))
    assert len(result.result()) == len(requests)


async def test_a_restarted_evaluation_worker_gets_its_requests_again(tmp_path: Path) -> None:
    scheduler = scheduler_in(tmp_path)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_online_evaluation(plan_in(tmp_path)))
        requests = await scheduler.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        await scheduler.register_worker("evaluation-worker", "2")
        again = await scheduler.acquire_evaluation_requests("evaluation-worker", "2", MANY, SOON_S)
        assert {(request.group, request.sample) for request in again} == {
            (each.group, each.sample) for each in requests
        }
        for request in again:
            await scheduler.report_evaluated(request, attempt_of(request))
    assert len(result.result()) == len(requests)


async def test_requests_lost_on_the_way_to_the_evaluation_worker_are_sent_again(tmp_path: Path) -> None:
    scheduler = scheduler_in(tmp_path)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_online_evaluation(plan_in(tmp_path)))
        requests = await scheduler.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        assert (
            await scheduler.acquire_evaluation_requests("evaluation-worker", "1", 1, 0.0, frozenset()) == requests[:1]
        )
        assert (
            await scheduler.acquire_evaluation_requests(
                "evaluation-worker", "1", MANY, 0.0, {request.attempt_id for request in requests}
            )
            == []
        )
        for request in requests:
            await scheduler.report_evaluated(request, attempt_of(request))
    assert len(result.result()) == len(requests)


async def test_an_abandoned_evaluation_leaves_no_requests_for_the_next(tmp_path: Path) -> None:
    scheduler = scheduler_in(tmp_path)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_online_evaluation(plan_in(tmp_path)))
        (request, *_) = await scheduler.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        result.cancel()
        await asyncio.sleep(0)
        await scheduler.report_evaluated(request, attempt_of(request))
        await scheduler.report_failed(replace(request, group=GroupId(1)), InfraFailure.ENGINE, "late")
        assert await scheduler.acquire_evaluation_requests("evaluation-worker", "1", MANY, 0.0) == []


async def test_a_failed_evaluation_ends_with_its_reason_and_training_continues(tmp_path: Path) -> None:
    scheduler = scheduler_in(tmp_path)
    await scheduler.set_run_state(SchedulerRunState(training=True))

    async def failing() -> None:
        for _ in range(LIMIT + 1):
            (request,) = await scheduler.acquire_evaluation_requests("evaluation-worker", "1", 1, SOON_S)
            await scheduler.report_failed(request, InfraFailure.ENGINE, "no server")

    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        group.create_task(failing())
        with pytest.raises(InfraError, match=r"step-000008 cannot be completed.*no server"):
            await scheduler.run_online_evaluation(plan_in(tmp_path))
    assert len(await scheduler.acquire_requests("worker", "1", MANY, SOON_S)) == 2
