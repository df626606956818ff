"""If these fail, an evaluation beside training mixes weights, keeps training's episodes from beginning, or has to begin
anew after a crash."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.admission import RolloutTuning
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.evaluation import EvaluationAttempt, EvaluationPlan
from actors.scheduler.online_evaluation import EvaluationAttemptFile, OnlineEvaluationPlan
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.scheduler.running_evaluation import RunningEvaluation
from actors.scheduler.settings import SchedulerRunState, SchedulerSettings, SchedulerSpec
from protocol.errors import InfraError
from protocol.staleness import AdmissionLimit, AdmissionMode
from protocol.trajectory import TRAIN_PURPOSE, EpisodeStatus, GroupId, InfraFailure, RolloutRequest
from protocol.weights import WeightVersion
from tests.support.fake_buffer import FakeBuffer
from tests.support.local_actors import LocalRemote

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
        tuning=RolloutTuning(),
        total_steps=9,
        request_deadline_s=100.0,
        seed=0,
        order=TaskOrder.LISTED,
    )


def exam_in(folder: Path, told: Told | None = None) -> RunningEvaluation:
    return RunningEvaluation.open_online(plan_in(folder), spec_in(folder), told or Told())


def attempt_of(ticket: RolloutRequest, *versions: int) -> EvaluationAttempt:
    return EvaluationAttempt(
        ticket.task, "f", ticket.greedy, True, 1.0, EpisodeStatus.COMPLETED, 5, versions or (VERSION,)
    )


def test_an_exam_in_a_dead_ones_place_goes_on_behind_the_attempts_that_there_are(tmp_path: Path) -> None:
    first = exam_in(tmp_path)
    done, lost, *_ = first.assign_requests("w#1", 3, 0.0)
    first.report_evaluated(done, attempt_of(done))
    with (tmp_path / "attempts.jsonl").open("ab") as file:
        file.write(b'{"group": 1, "sam')  # killed while it wrote
    second = exam_in(tmp_path)
    left = second.assign_requests("w#2", MANY, 0.0)
    assert len(left) == second.tracker.total - 1
    assert lost in left
    for ticket in left:
        second.report_evaluated(ticket, attempt_of(ticket))
    assert second.tracker.finished.is_set()
    assert exam_in(tmp_path).tracker.attempts() == second.tracker.attempts()


@pytest.mark.parametrize(
    "line", [b'{"group": 0\x00', b'{"group": 0}', b"[]", b'{"group": 0, "sample": 0, "attempt": 1}']
)
def test_an_attempt_that_a_disk_has_damaged_is_made_again(line: bytes, tmp_path: Path) -> None:
    """Training would end for a line of an evaluation beside it."""
    first = exam_in(tmp_path)
    for ticket in first.assign_requests("w#1", 2, 0.0):
        first.report_evaluated(ticket, attempt_of(ticket))
    _, kept = (tmp_path / "attempts.jsonl").read_bytes().splitlines()
    (tmp_path / "attempts.jsonl").write_bytes(line + b"\n" + kept + b"\n")
    second = exam_in(tmp_path)
    assert len(second.tracker.finished_attempts) == 1
    assert len(second.assign_requests("w#2", MANY, 0.0)) == second.tracker.total - 1


def test_an_attempt_of_other_weights_is_none_and_is_tried_again(tmp_path: Path) -> None:
    told = Told()
    exam = exam_in(tmp_path, told)
    (ticket,) = exam.assign_requests("w#1", 1, 0.0)
    exam.report_evaluated(ticket, attempt_of(ticket, VERSION, VERSION + 1))
    assert exam.tracker.finished_attempts == {}
    assert told.kinds == ["episode.failed", "rollout_request.reissued"]
    (again,) = exam.assign_requests("w#1", 1, 0.0)
    assert again == replace(ticket, attempt=1)


def test_an_attempt_that_was_broken_off_before_the_first_token_counts(tmp_path: Path) -> None:
    exam = exam_in(tmp_path)
    (ticket,) = exam.assign_requests("w#1", 1, 0.0)
    exam.report_evaluated(ticket, replace(attempt_of(ticket), versions=()))
    assert len(exam.tracker.finished_attempts) == 1


def test_an_attempt_that_cannot_be_kept_can_be_given_back(tmp_path: Path) -> None:
    """Else nobody would be sent for it again, and the evaluation would never end."""
    exam = exam_in(tmp_path)
    (ticket,) = exam.assign_requests("w#1", 1, 0.0)
    (tmp_path / "attempts.jsonl").mkdir()
    with pytest.raises(OSError, match="attempts"):
        exam.report_evaluated(ticket, attempt_of(ticket))
    exam.report_failed(ticket, InfraFailure.UNEXPECTED, "no space")
    assert exam.assign_requests("w#1", 1, 0.0) == [replace(ticket, attempt=1)]


def test_a_task_that_infrastructure_keeps_failing_ends_it_with_the_last_reason(tmp_path: Path) -> None:
    exam = exam_in(tmp_path)
    for _ in range(LIMIT + 1):
        (ticket,) = exam.assign_requests("w#1", 1, 0.0)
        exam.report_failed(ticket, InfraFailure.SANDBOX_START, "the daemon is gone")
    assert exam.tracker.finished.is_set()
    assert "sandbox_start: the daemon is gone" in str(exam.tracker.failure)


def test_it_goes_on_without_a_task_that_fails_itself(tmp_path: Path) -> None:
    exam = exam_in(tmp_path, told := Told())
    late, ticket, *_ = [each for each in exam.assign_requests("w#1", MANY, 0.0) if each.task == "a"]
    for _ in range(LIMIT):
        exam.report_failed(ticket, InfraFailure.TASK_FAULT, "no build")
        (ticket,) = exam.assign_requests("w#1", MANY, 0.0)
    exam.report_failed(ticket, InfraFailure.TASK_FAULT, "no build")
    exam.report_evaluated(late, attempt_of(late))
    assert (exam.tracker.excluded_tasks, exam.tracker.total, told.kinds.count("alert.raised")) == ({"a"}, 3, 1)
    assert exam.tracker.finished_attempts == exam_in(tmp_path).tracker.finished_attempts == {}


@given(st.lists(st.tuples(st.sampled_from(["take", "done", "failed", "worker", "late", "crash"]), st.integers(0, 5))))
def test_whatever_dies_each_attempt_is_counted_once_and_none_is_forgotten(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[tuple[str, int]]
) -> None:
    """Every attempt is done, waits, or is with a worker: so it is over exactly when all are there."""
    folder = tmp_path_factory.mktemp("exam")
    exam, held, incarnation, now = exam_in(folder), list[RolloutRequest](), 0, 0.0
    counted: dict[tuple[int, int], EvaluationAttempt] = {}
    for happening, number in happenings:
        now += 1.0
        if happening == "take":
            held += exam.assign_requests(f"w#{incarnation}", number, now)
        elif happening == "done" and held:
            ticket = held.pop(number % len(held))
            exam.report_evaluated(ticket, attempt_of(ticket))
        elif happening == "failed" and held:
            exam.report_failed(held.pop(number % len(held)), InfraFailure.ENGINE, "")
        elif happening == "worker":
            incarnation += 1
            exam.reclaim_from_worker("w", "", except_incarnation=f"w#{incarnation}")
        elif happening == "late":
            now += 200.0
            exam.reissue_overdue(now)
        elif happening == "crash":
            exam = exam_in(folder)
        assert counted.items() <= exam.tracker.finished_attempts.items(), "an attempt was forgotten or made anew"
        counted = dict(exam.tracker.finished_attempts)
        if exam.tracker.failure is not None:
            return
    now += 200.0
    exam.reissue_overdue(now)
    exam.reclaim_from_worker("w", "", except_incarnation="w#last")
    for _ in range(LIMIT + 1):
        for ticket in exam.assign_requests("w#last", MANY, now):
            exam.report_evaluated(ticket, attempt_of(ticket))
    assert exam.tracker.finished.is_set()
    assert (
        len(EvaluationAttemptFile(folder / "attempts.jsonl").read_attempts()) == exam.tracker.total
        or exam.tracker.failure
    )


def conductor_in(folder: Path) -> RolloutScheduler:
    return RolloutScheduler(spec_in(folder), LocalRemote(FakeBuffer()))


async def test_training_and_an_exam_never_get_each_others_tickets(tmp_path: Path) -> None:
    """Else training waits behind an evaluation, or its tokens are of the wrong weights."""
    conductor = conductor_in(tmp_path)
    await conductor.set_run_state(SchedulerRunState(training=True))
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(conductor.run_online_evaluation(plan_in(tmp_path)))
        exam = await conductor.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        training = await conductor.acquire_requests("worker", "1", MANY, SOON_S)
        assert {ticket.purpose for ticket in exam} == {PLAN.name}
        assert {ticket.purpose for ticket in training} == {TRAIN_PURPOSE}
        assert len(training) == 2
        assert await conductor.acquire_evaluation_requests("evaluation-worker", "1", MANY, 0.0) == []
        await conductor.set_run_state(SchedulerRunState(training=False))
        for ticket in exam:
            await conductor.report_evaluated(ticket, attempt_of(ticket))
    assert len(result.result()) == len(exam)


async def test_an_examiner_that_died_gets_its_tickets_again(tmp_path: Path) -> None:
    conductor = conductor_in(tmp_path)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(conductor.run_online_evaluation(plan_in(tmp_path)))
        exam = await conductor.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        await conductor.register_worker("evaluation-worker", "2")
        again = await conductor.acquire_evaluation_requests("evaluation-worker", "2", MANY, SOON_S)
        assert {(ticket.group, ticket.sample) for ticket in again} == {(each.group, each.sample) for each in exam}
        for ticket in again:
            await conductor.report_evaluated(ticket, attempt_of(ticket))
    assert len(result.result()) == len(exam)


async def test_tickets_whose_way_to_the_examiner_was_cut_are_given_again(tmp_path: Path) -> None:
    conductor = conductor_in(tmp_path)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(conductor.run_online_evaluation(plan_in(tmp_path)))
        exam = await conductor.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        assert await conductor.acquire_evaluation_requests("evaluation-worker", "1", 1, 0.0, frozenset()) == exam[:1]
        assert (
            await conductor.acquire_evaluation_requests(
                "evaluation-worker", "1", MANY, 0.0, {request.attempt_id for request in exam}
            )
            == []
        )
        for ticket in exam:
            await conductor.report_evaluated(ticket, attempt_of(ticket))
    assert len(result.result()) == len(exam)


async def test_an_exam_that_is_given_up_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    conductor = conductor_in(tmp_path)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(conductor.run_online_evaluation(plan_in(tmp_path)))
        (ticket, *_) = await conductor.acquire_evaluation_requests("evaluation-worker", "1", MANY, SOON_S)
        result.cancel()
        await asyncio.sleep(0)
        await conductor.report_evaluated(ticket, attempt_of(ticket))
        await conductor.report_failed(replace(ticket, group=GroupId(1)), InfraFailure.ENGINE, "late")
        assert await conductor.acquire_evaluation_requests("evaluation-worker", "1", MANY, 0.0) == []


async def test_one_that_infrastructure_fails_ends_with_its_reason_and_training_goes_on(tmp_path: Path) -> None:
    conductor = conductor_in(tmp_path)
    await conductor.set_run_state(SchedulerRunState(training=True))

    async def failing() -> None:
        for _ in range(LIMIT + 1):
            (ticket,) = await conductor.acquire_evaluation_requests("evaluation-worker", "1", 1, SOON_S)
            await conductor.report_failed(ticket, InfraFailure.ENGINE, "no server")

    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        group.create_task(failing())
        with pytest.raises(InfraError, match=r"step-000008 cannot be completed.*no server"):
            await conductor.run_online_evaluation(plan_in(tmp_path))
    assert len(await conductor.acquire_requests("worker", "1", MANY, SOON_S)) == 2
