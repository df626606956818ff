"""If these fail, tokens are older than the user allowed, a task is skipped, or a lost episode leaves a run waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from actors.scheduler import rollout_scheduler as scheduler_module
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.evaluation.plan import EvaluationPlan
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.scheduler.settings import SchedulerRunState, SchedulerSettings, SchedulerSpec
from actors.scheduler.task_images import TaskImages
from protocol.errors import InfraError, UserError, iterate_leaf_errors
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFullError, DiskFullError
from protocol.staleness import AdmissionLimit, AdmissionMode
from protocol.trajectory import DropReason, GroupId, InfraFailure, RolloutRequest
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_buffer import FakeBuffer
from tests.support.fakes.fake_clock import FakeClock
from tests.support.runs.attempts import attempt_for_request

TASKS = ("a", "b", "c", "d", "e")
PER_STEP, SIZE, MAX_STALENESS, STEPS = 2, 2, 2, 10
SOON_S = 30.0
MANY = 99
DEADLINE_S = 100.0


@pytest.fixture(autouse=True)
def _patrols_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "REISSUE_S", 0.001)


@pytest.fixture
def buffer() -> FakeBuffer:
    return FakeBuffer()


def make(
    run_dir: Path,
    buffer: FakeBuffer,
    mode: AdmissionMode = AdmissionMode.SYNC,
    clock: FakeClock | None = None,
    order: TaskOrder = TaskOrder.LISTED,
) -> RolloutScheduler:
    settings = SchedulerSpec(
        run_id="run",
        run_dir=run_dir,
        node="node-0",
        tasks=TASKS,
        settings=SchedulerSettings(groups_per_step=PER_STEP, group_size=SIZE, replacement_limit=1),
        admission=AdmissionLimit(mode, PER_STEP, MAX_STALENESS),
        total_steps=STEPS,
        request_deadline_s=DEADLINE_S,
        seed=0,
        order=order,
        tuning=SchedulerSettings().tuning(publish_every=1),
    )
    return RolloutScheduler(settings, LocalRemote(buffer), clock or FakeClock())


@contextlib.asynccontextmanager
async def running(scheduler: RolloutScheduler) -> AsyncIterator[None]:
    """Its ``run`` beside the body."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scheduler.run())
        try:
            yield
        finally:
            task.cancel()


async def take(scheduler: RolloutScheduler, free: int = MANY, worker: str = "w") -> list[RolloutRequest]:
    """Return the requests that can be assigned now."""
    return await scheduler.acquire_requests(worker, "1", free, 0.0)


async def until_taken(scheduler: RolloutScheduler, free: int = MANY) -> list[RolloutRequest]:
    requests = await scheduler.acquire_requests("w", "1", free, SOON_S)
    assert requests, "no request came"
    return requests


async def train(scheduler: RolloutScheduler, served_step: int = 0) -> None:
    await scheduler.set_run_state(SchedulerRunState(training=True, served_step=served_step))


def events(run_dir: Path, kind: str) -> list[dict[str, object]]:
    lines = map(orjson.loads, (run_dir / "events" / "scheduler.jsonl").read_bytes().splitlines())
    return [line for line in lines if line["kind"] == kind]


def tasks_of(requests: list[RolloutRequest]) -> list[str]:
    return [request.task for request in requests if request.sample == 0]


# -- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "steps_ahead"),
    [(AdmissionMode.SYNC, 0), (AdmissionMode.ONE_STEP_OFF, 1), (AdmissionMode.ASYNC, MAX_STALENESS)],
)
async def test_rollout_runs_ahead_exactly_as_far_as_its_mode_allows(
    tmp_path: Path, buffer: FakeBuffer, mode: AdmissionMode, steps_ahead: int
) -> None:
    scheduler = make(tmp_path, buffer, mode)
    assert await take(scheduler) == []
    await train(scheduler)
    assert len(await take(scheduler)) == (1 + steps_ahead) * PER_STEP * SIZE
    assert await take(scheduler) == []
    await train(scheduler, served_step=1)
    assert len(await take(scheduler)) == PER_STEP * SIZE


async def test_a_trained_batch_opens_no_groups_before_its_weights_are_served(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    """Otherwise a synchronous run begins its next step's episodes on the old weights."""
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler)
        await until_taken(scheduler)
        for group in range(PER_STEP):
            await buffer.close(group)
        await settled(scheduler, open_groups=0, ready_groups=PER_STEP)
        await buffer.mark_trained(1, [f"{group}/0" for group in range(PER_STEP)], {})
        await settled(scheduler, ready_groups=0)
        assert await take(scheduler) == []
        await train(scheduler, served_step=1)
        assert [request.group for request in await until_taken(scheduler)] == [2, 2, 3, 3]


async def settled(scheduler: RolloutScheduler, **expected: int) -> None:
    """Until the scheduler's statistics say so."""
    async with asyncio.timeout(SOON_S):
        while not expected.items() <= asdict(await scheduler.statistics()).items():  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)


async def test_dropped_groups_are_replaced_and_the_last_step_is_not_passed(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler, served_step=STEPS + 5)
        assert len(await until_taken(scheduler)) == STEPS * PER_STEP * SIZE
        await buffer.close(3, GroupOutcome.ZERO_VARIANCE)
        assert {request.group for request in await until_taken(scheduler)} == {STEPS * PER_STEP}


async def test_groups_dropped_as_stale_are_replaced(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler, served_step=STEPS + 5)
        await until_taken(scheduler)
        for group in range(PER_STEP):
            await buffer.close(group)
        await buffer.mark_trained(1, [], {f"{group}/0": DropReason.ALL_STALE for group in range(PER_STEP)})
        assert len(await until_taken(scheduler)) == PER_STEP * SIZE


async def test_the_end_of_training_withdraws_its_requests(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    await train(scheduler)
    await take(scheduler, 1)
    await scheduler.set_run_state(SchedulerRunState(training=False))
    assert await take(scheduler) == []
    assert ((await scheduler.statistics()).assigned, (await scheduler.statistics()).waiting) == (0, 0)


async def test_a_step_is_bound_by_the_oldest_running_group(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Otherwise the policy ``wait`` lets the learner go past what a running episode can bear."""
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        assert await scheduler.oldest_running_step(0, []) is None
        await train(scheduler)
        await until_taken(scheduler)
        await train(scheduler, served_step=1)
        await until_taken(scheduler)
        assert await scheduler.oldest_running_step(0, []) == 0
        for group in range(PER_STEP):
            await buffer.close(group)
        await settled(scheduler, open_groups=PER_STEP)
        assert await scheduler.oldest_running_step(0, [GroupId(0), GroupId(1)]) == 1
        assert await scheduler.oldest_running_step(0, []) == 0
        assert await scheduler.oldest_running_step(1, []) == 0, "a lease that led to no step trains nothing"
    restarted = make(tmp_path, buffer)
    assert await restarted.oldest_running_step(0, []) == 0, "a new scheduler knows of the groups that run"


async def test_a_restarted_scheduler_orders_the_next_epoch_like_the_previous_one(tmp_path: Path) -> None:
    """Otherwise a resumed run skips some tasks of the epoch and repeats others."""
    rewards = {"a": 1.0, "b": 0.25, "c": 0.5, "d": 0.0, "e": 0.75}

    async def tasks(buffer: FakeBuffer, *, dying: bool) -> list[str]:
        scheduler = make(tmp_path, buffer, order=TaskOrder.FRONTIER)
        for group in range(3 * len(TASKS)):
            if dying:
                scheduler = make(tmp_path, buffer, order=TaskOrder.FRONTIER)
            await train(scheduler, served_step=group)
            async with running(scheduler), asyncio.timeout(SOON_S):
                while buffer.followed < group:  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(0)
                await until_taken(scheduler, SIZE)
            await buffer.close(group, reward=rewards[buffer.plans[group].task])
        return [buffer.plans[group].task for group in range(3 * len(TASKS))]

    one, many = await tasks(FakeBuffer(), dying=False), await tasks(FakeBuffer(), dying=True)
    assert many == one
    assert (one[5], {*one[5:10]}) == ("c", {*TASKS}), "the task of the frontier comes first"


# -- requests ---------------------------------------------------------------------------------------------------------


async def test_no_request_leaves_before_its_group_is_durable(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Otherwise its trajectory arrives for a group that a restarted buffer does not know."""
    scheduler = make(tmp_path, buffer)
    await train(scheduler)
    buffer.may_open.clear()
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(until_taken(scheduler, 1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done()
        buffer.may_open.set()
    (request,) = taking.result()
    assert buffer.plans[request.group].rollout_request("run", request.sample) == request


async def test_requests_awaited_by_a_dead_worker_go_to_its_replacement(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Its call goes on in the scheduler after its death; requests handed to it would be missed until their deadline."""
    scheduler = make(tmp_path, buffer)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        await scheduler.register_worker("w", "1")
        await train(scheduler)
        held = await scheduler.acquire_requests("w", "1", MANY, 0.0)
        waits = group.create_task(scheduler.acquire_requests("w", "1", MANY, SOON_S))
        await asyncio.sleep(0)
        await scheduler.register_worker("w", "2")
        assert await waits == []
        again = await scheduler.acquire_requests("w", "2", MANY, 0.0)
    assert {(request.group, request.sample, request.attempt) for request in again} == {
        (request.group, request.sample, 1) for request in held
    }


async def test_requests_lost_on_the_way_to_their_worker_are_sent_again(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Otherwise they would be missing until their deadline, which is that of the longest episode."""
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    await train(scheduler)
    first = await scheduler.acquire_requests("w", "1", 2, 0.0, frozenset())
    assert await scheduler.acquire_requests("w", "1", MANY, 0.0, frozenset()) == first
    held = {request.attempt_id for request in first}
    others = await scheduler.acquire_requests("w", "1", MANY, 0.0, held)
    assert not {request.attempt_id for request in others} & held
    assert {line["trajectory"] for line in events(tmp_path, "rollout_request.redelivered")} == {
        request.trajectory_id for request in first
    }
    await scheduler.report_finished(first[0])
    assert (
        await scheduler.acquire_requests("w", "1", MANY, 0.0, {request.attempt_id for request in (first[1], *others)})
        == []
    )


async def test_requests_of_a_removed_worker_are_reissued_at_once(tmp_path: Path, buffer: FakeBuffer) -> None:
    """No successor says hello there, and a request's deadline is the longest episode's."""
    scheduler = make(tmp_path, buffer)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        await scheduler.register_worker("w", "1")
        await scheduler.register_worker("other", "1")
        await train(scheduler)
        held = await scheduler.acquire_requests("w", "1", MANY, 0.0)
        waits = group.create_task(scheduler.acquire_requests("other", "1", MANY, SOON_S))
        await asyncio.sleep(0)
        await scheduler.remove_worker("w")
        again = await waits
        assert await scheduler.acquire_requests("w", "1", MANY, SOON_S) == []
    assert {(request.group, request.sample, request.attempt) for request in again} == {
        (request.group, request.sample, 1) for request in held
    }


async def test_requests_of_a_worker_that_died_during_a_buffer_outage_go_to_its_replacement(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    """Nobody would read the answer to its call, and its requests be missed until their deadline."""
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    await train(scheduler)
    buffer.may_open.clear()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        pending = group.create_task(scheduler.acquire_requests("w", "1", MANY, SOON_S))
        for _ in range(10):
            await asyncio.sleep(0)
        await scheduler.register_worker("w", "2")
        buffer.may_open.set()
        assert await pending == []
    assert len(await scheduler.acquire_requests("w", "2", MANY, 0.0)) == PER_STEP * SIZE


async def test_a_run_ends_with_the_reason_after_too_many_wasted_groups(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012  it ends inside
        async with running(scheduler):
            await train(scheduler, served_step=STEPS + 5)
            await scheduler.report_failed(
                (await until_taken(scheduler))[0], InfraFailure.SANDBOX_START, "no daemon\nthere"
            )
            for group in range(8 * PER_STEP):
                await buffer.close(group, GroupOutcome.TOO_FEW_MEMBERS)
            await asyncio.sleep(SOON_S)
    (error,) = iterate_leaf_errors(caught.value)
    assert isinstance(error, InfraError)
    assert "wasted 16 groups in a row, most recently by sandbox_start: no daemon there" in str(error)
    assert "no progress is lost: fix the cause and resume the run" in str(error)


async def test_abandoning_a_sample_is_retried_after_a_full_disk(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Otherwise no worker would have its request, and its group would never close."""
    scheduler = make(tmp_path, buffer)
    async with asyncio.timeout(SOON_S), running(scheduler):
        await train(scheduler)
        (request,) = await scheduler.acquire_requests("w", "1", 1, SOON_S)
        await scheduler.report_failed(request, InfraFailure.ENGINE, "")
        (again,) = await scheduler.acquire_requests("w", "1", 1, SOON_S)
        buffer.abandon_full = 2
        await scheduler.report_failed(again, InfraFailure.ENGINE, "")
        while not buffer.abandoned:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
    assert buffer.abandoned == [(request.group, request.sample, "engine")]


async def test_one_successful_group_resets_the_count_of_wasted_groups(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler, served_step=STEPS + 5)
        await until_taken(scheduler)
        for group in range(PER_STEP * STEPS - 1):
            await buffer.close(group, GroupOutcome.ZERO_VARIANCE if group == 10 else GroupOutcome.TOO_FEW_MEMBERS)
        await settled(scheduler, open_groups=1)
        assert await until_taken(scheduler)


class LateAnswers(FakeBuffer):
    """A buffer whose groups are durable before it answers."""

    async def open_group(self, plan: GroupPlan, cursor: bytes) -> None:
        self.plans[plan.group] = plan
        await super().open_group(plan, cursor)


@pytest.mark.parametrize("arrived", [False, True])
async def test_an_interrupted_group_opening_is_repeated_next(tmp_path: Path, *, arrived: bool) -> None:
    """Otherwise a task is skipped, or its group waits for samples that nobody was sent for, each time that the buffer
    takes longer to come back than a worker waits for a request."""
    buffer = LateAnswers() if arrived else FakeBuffer()
    scheduler = make(tmp_path, buffer)
    await train(scheduler)
    buffer.may_open.clear()
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(until_taken(scheduler, 1))
        for _ in range(10):
            await asyncio.sleep(0)
        taking.cancel()
    assert len(buffer.plans) == arrived
    buffer.may_open.set()
    requests = await take(scheduler)
    assert tasks_of(requests) == list(TASKS[:PER_STEP])
    assert sorted(buffer.plans) == list(range(PER_STEP))


async def test_a_restarted_worker_has_its_requests_issued_again_first(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    await train(scheduler)
    mine, other = await take(scheduler, 1, "mine"), await take(scheduler, 1, "other")
    await scheduler.register_worker("mine", "2")
    again = await take(scheduler, 1)
    assert [(each.group, each.sample, each.attempt) for each in again] == [(mine[0].group, mine[0].sample, 1)]
    await scheduler.report_finished(other[0])
    assert [event["reason"] for event in events(tmp_path, "episode.failed")] == [InfraFailure.WORKER_DIED]


async def test_a_sample_is_abandoned_after_its_replacements_and_reported_once(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer)
    await train(scheduler)
    first, *_ = await take(scheduler)
    await scheduler.report_failed(first, InfraFailure.ENGINE, "gone")
    (second,) = await take(scheduler)
    await scheduler.report_failed(first, InfraFailure.ENGINE, "a late word on the first attempt")
    await scheduler.report_failed(second, InfraFailure.ENGINE, "gone")
    assert await take(scheduler) == []
    assert buffer.abandoned == [(first.group, first.sample, InfraFailure.ENGINE.value)]


async def test_a_request_without_a_report_past_its_deadline_is_reissued(tmp_path: Path, buffer: FakeBuffer) -> None:
    clock = FakeClock()
    scheduler = make(tmp_path, buffer, clock=clock)
    async with running(scheduler):
        await train(scheduler)
        first = await until_taken(scheduler)
        clock.now = DEADLINE_S + 1
        again: list[RolloutRequest] = []
        while len(again) < len(first):
            again += await until_taken(scheduler)
        assert {request.attempt for request in again} == {1}
        assert {request.trajectory_id for request in again} == {request.trajectory_id for request in first}


async def test_a_task_of_a_group_wasted_by_infrastructure_is_repeated_exactly_once(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler)
        assert tasks_of(await until_taken(scheduler)) == ["a", "b"]
        await buffer.close(0, GroupOutcome.TOO_FEW_MEMBERS)
        assert tasks_of(await until_taken(scheduler)) == ["a"]
        await buffer.close(2, GroupOutcome.TOO_FEW_MEMBERS)
        assert tasks_of(await until_taken(scheduler)) == ["c"]


# -- what is full ----------------------------------------------------------------------------------------------------


async def test_a_full_buffer_blocks_and_the_task_comes_when_bytes_are_free(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler)
        buffer.full = BudgetFullError("no room")
        assert await take(scheduler) == []
        assert await take(scheduler) == []
        assert (await scheduler.statistics()).budget_full
        buffer.full = None
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(until_taken(scheduler))
            await asyncio.sleep(0)
            await buffer.notify_progress()
        assert tasks_of(taking.result()) == ["a", "b"]
        assert not (await scheduler.statistics()).budget_full
    assert len(events(tmp_path, "admission.blocked")) == 1


async def test_a_full_disk_ends_the_run_only_when_nothing_is_under_way(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012  the run ends inside
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(scheduler.run())
            await train(scheduler)
            requests = await until_taken(scheduler, SIZE)
            buffer.full = DiskFullError("the disk is full")
            assert await take(scheduler) == []
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not ended.done()
            for request in requests:
                await scheduler.report_finished(request)
            await asyncio.sleep(SOON_S)
    assert caught.group_contains(DiskFullError)


# -- evaluation ------------------------------------------------------------------------------------------------------


async def test_an_evaluation_counts_each_attempt_exactly_once_despite_failures(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer)
    plan = EvaluationPlan("before", ("a", "b"), attempts=2, greedy=1, seed=3)
    async with asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_evaluation(plan))
        first, *rest = await until_taken(scheduler)
        (again,) = await _failed_and_taken(scheduler, first)
        assert again.attempt == first.attempt + 1
        for request in reversed(rest):
            await scheduler.report_evaluated(request, attempt_for_request(request, passed=request.sample == 0))
            await scheduler.report_evaluated(request, attempt_for_request(request, passed=True))
        assert not result.done()
        await scheduler.report_evaluated(again, attempt_for_request(again))
    attempts = result.result()
    assert [(each.task, each.greedy, each.passed) for each in attempts] == [
        (task, sample == 2, sample == 0) for task in ("a", "b") for sample in range(3)
    ]
    assert [event["done"] for event in events(tmp_path, "evaluation.progress")] == [1, 2, 3, 4, 5, 6]
    assert buffer.plans == {}
    assert buffer.abandoned == []


async def test_an_evaluation_that_infrastructure_keeps_failing_ends_with_the_last_reason(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    """Otherwise a run without a working sandbox issues the same requests for ever, and says nothing."""
    scheduler = make(tmp_path, buffer)
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012  the evaluation ends inside
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
            group.create_task(
                scheduler.run_evaluation(EvaluationPlan("before", ("a", "b"), attempts=2, greedy=1, seed=3))
            )
            first, *_ = await until_taken(scheduler)
            (again,) = await _failed_and_taken(scheduler, first)
            await scheduler.report_failed(again, InfraFailure.SANDBOX_START, "the daemon\nis gone")
            await asyncio.sleep(SOON_S)
    (error,) = caught.value.exceptions
    assert type(error) is InfraError
    assert "evaluation before" in str(error)
    assert "task a 2 times" in str(error)
    assert "sandbox_start: the daemon is gone; fix that and resume the run" in str(error)
    assert await take(scheduler) == []
    assert buffer.abandoned == []


async def test_an_evaluation_continues_without_a_faulty_task(tmp_path: Path, buffer: FakeBuffer) -> None:
    """One broken Dockerfile among the held-out tasks would end a run before its first step, or after its last."""
    scheduler = make(tmp_path, buffer)
    plan = EvaluationPlan("before", ("a", "b"), attempts=2, greedy=0, seed=3)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_evaluation(plan))
        requests = await until_taken(scheduler)
        broken, others = [[each for each in requests if (each.task == "a") is own] for own in (True, False)]
        await scheduler.report_evaluated(broken[0], attempt_for_request(broken[0]))
        await scheduler.report_failed(broken[1], InfraFailure.TASK_FAULT, "no build")
        (again,) = await until_taken(scheduler)
        await scheduler.report_failed(again, InfraFailure.TASK_FAULT, "the setup\nexited 1")
        for request in others:
            await scheduler.report_evaluated(request, attempt_for_request(request))
    assert [each.task for each in result.result()] == ["b", "b"]
    (alert,) = events(tmp_path, "alert.raised")
    assert alert["text"] == "evaluation before continues without task a, which cannot run: the setup exited 1"
    assert await take(scheduler) == []


async def test_an_evaluation_of_only_faulty_tasks_ends_without_an_attempt(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Training can go on: its own tasks may be sound."""
    scheduler = make(tmp_path, buffer)
    plan = EvaluationPlan("before", ("a",), attempts=2, greedy=0, seed=3)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
        result = group.create_task(scheduler.run_evaluation(plan))
        done, first = await until_taken(scheduler)
        await scheduler.report_evaluated(done, attempt_for_request(done))
        (again,) = await _failed_and_taken(scheduler, first)
        await scheduler.report_failed(again, InfraFailure.TASK_FAULT, "no build")
    assert result.result() == []
    (alert,) = events(tmp_path, "alert.raised")
    assert "none of its tasks can run, the last of which is a: no build" in str(alert["text"])


async def test_an_attempt_that_arrives_late_is_not_abandoned(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    async with asyncio.TaskGroup() as group:
        result = group.create_task(
            scheduler.run_evaluation(EvaluationPlan("after", ("a",), attempts=2, greedy=0, seed=3))
        )
        first, second = await until_taken(scheduler)
        await scheduler.report_failed(first, InfraFailure.DEADLINE, "")
        (again,) = await until_taken(scheduler)
        await scheduler.report_evaluated(first, attempt_for_request(first))
        await scheduler.report_failed(again, InfraFailure.DEADLINE, "")
        await scheduler.report_evaluated(second, attempt_for_request(second))
    assert len(result.result()) == 2


async def test_a_failure_reported_after_an_evaluation_has_no_effect(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    async with asyncio.TaskGroup() as group:
        result = group.create_task(
            scheduler.run_evaluation(EvaluationPlan("after", ("a",), attempts=1, greedy=0, seed=3))
        )
        (request,) = await until_taken(scheduler)
        await scheduler.report_evaluated(request, attempt_for_request(request))
    await scheduler.report_failed(request, InfraFailure.ENGINE, "late")
    assert len(result.result()) == 1
    assert await take(scheduler) == []


async def _failed_and_taken(scheduler: RolloutScheduler, request: RolloutRequest) -> list[RolloutRequest]:
    await scheduler.report_failed(request, InfraFailure.SANDBOX_START, "no")
    return await until_taken(scheduler)


async def test_a_task_wasted_just_before_a_scheduler_restart_is_still_repeated(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    """The return of a task is durable with the next group only; until then the journal's closing has to tell of it."""
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler)
        assert tasks_of(await until_taken(scheduler)) == ["a", "b"]
    await buffer.close(0, GroupOutcome.TOO_FEW_MEMBERS)
    restarted = make(tmp_path, buffer)
    await train(restarted)
    assert tasks_of(await take(restarted)) == ["b", "a"]


# -- a restart -------------------------------------------------------------------------------------------------------


async def test_a_restarted_scheduler_goes_on_from_the_journal(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer, AdmissionMode.ONE_STEP_OFF)
    async with running(scheduler):
        await train(scheduler)
        assert tasks_of(await until_taken(scheduler)) == ["a", "b", "c", "d"]
        await buffer.close(0)
        await buffer.close(1, GroupOutcome.ZERO_VARIANCE)
        assert tasks_of(await until_taken(scheduler)) == ["e"]
    buffer.missing = {2: (1,)}

    restarted = make(tmp_path, buffer, AdmissionMode.ONE_STEP_OFF)
    async with running(restarted):
        await train(restarted)
        requests = await take(restarted)
        assert [(request.group, request.sample) for request in requests] == [(2, 1), (3, 0), (3, 1), (4, 0), (4, 1)]
        await train(restarted, served_step=1)
        following = await until_taken(restarted)
        assert [request.group for request in following] == [5, 5, 6, 6]


# -- what a person gives up -------------------------------------------------------------------------------------------


async def test_a_cancelled_sample_is_not_requested_again_and_the_journal_has_the_reason(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler)
        first, *_ = await take(scheduler, 1)
        assert await scheduler.cancel_samples(first.group, first.sample) == (first.sample,)
        assert buffer.abandoned == [(first.group, first.sample, DropReason.CANCELLED.value)]
        with pytest.raises(UserError, match="is not running"):
            await scheduler.cancel_samples(first.group, first.sample)
        with pytest.raises(UserError, match="group 99 is not open"):
            await scheduler.cancel_samples(GroupId(99), None)
        await scheduler.report_failed(first, InfraFailure.ENGINE, "its episode was ended")
        assert (first.group, first.sample) not in {(each.group, each.sample) for each in await take(scheduler)}


async def test_a_cancelled_group_is_replaced_by_another_task(tmp_path: Path, buffer: FakeBuffer) -> None:
    """By the same one it would be given up for nothing."""
    scheduler = make(tmp_path, buffer)
    async with running(scheduler):
        await train(scheduler)
        requests = await take(scheduler)
        assert tasks_of(requests) == ["a", "b"]
        assert await scheduler.cancel_samples(GroupId(0), None) == (0, 1)
        assert tasks_of(await until_taken(scheduler)) == ["c"]
    assert buffer.closed[0].outcome is GroupOutcome.CANCELLED


# -- images ------------------------------------------------------------------------------------------------------------


async def test_a_run_begins_with_the_tasks_whose_images_are_there_and_the_others_come_in_their_order(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer, AdmissionMode.ASYNC)
    await scheduler.register_worker("w", "1")
    order = await scheduler.report_images("w", "1", TaskImages(frozenset("abd")))
    assert list(order) == list(TASKS)
    await train(scheduler)
    assert tasks_of(await take(scheduler)) == ["c", "e"]
    assert await take(scheduler) == [], "no slot is taken by an episode that would wait for a build"
    assert [each["task"] for each in events(tmp_path, "task.put_off")] == ["a", "b", "d"]
    await scheduler.report_images("w", "1", TaskImages(frozenset("ad")))
    assert tasks_of(await take(scheduler, free=SIZE)) == ["b"]
    await scheduler.report_images("w", "1", TaskImages())
    assert tasks_of(await take(scheduler, free=2 * SIZE)) == ["a", "d"]
    assert [(each["ready"], each["tasks"]) for each in events(tmp_path, "images.counted")] == [(2, 5), (3, 5), (5, 5)]


async def test_a_waiting_worker_gets_a_task_as_soon_as_its_image_is_there(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    await scheduler.report_images("w", "1", TaskImages(frozenset(TASKS)))
    await train(scheduler)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(until_taken(scheduler))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        await scheduler.report_images("w", "1", TaskImages(frozenset("abde")))
    assert tasks_of(waiting.result()) == ["c"]


async def test_each_worker_gets_the_tasks_that_its_own_machine_can_start(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer, AdmissionMode.ASYNC)
    for worker, missing in (("v", "ab"), ("w", "cde")):
        await scheduler.register_worker(worker, "1")
        await scheduler.report_images(worker, "1", TaskImages(frozenset(missing)))
    await train(scheduler)
    assert tasks_of(await take(scheduler, 3 * SIZE, "v")) == ["c", "d", "e"]
    assert tasks_of(await take(scheduler, 2 * SIZE, "w")) == ["a", "b"]


async def test_a_task_whose_image_cannot_be_made_is_left_out_with_its_reason(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer, AdmissionMode.ASYNC)
    await scheduler.register_worker("w", "1")
    for _ in range(2):
        await scheduler.report_images("w", "1", TaskImages(failed={"b": "step 3/7: RUN make"}))
    await train(scheduler)
    assert "b" not in tasks_of(await take(scheduler))
    assert [(each["task"], each["reason"]) for each in events(tmp_path, "task.unusable")] == [
        ("b", "step 3/7: RUN make")
    ]


async def test_a_task_is_drawn_again_once_its_image_is_made(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer, AdmissionMode.ASYNC)
    await scheduler.register_worker("w", "1")
    await train(scheduler)
    first, *_ = await take(scheduler, free=1)
    for _ in range(2):  # it is left out whatever becomes of its image
        await scheduler.report_failed(first, InfraFailure.TASK_FAULT, "set-up failed")
        first, *_ = await take(scheduler, free=1)
    await scheduler.report_images("w", "1", TaskImages(failed=dict.fromkeys("ab", "step 1")))
    await scheduler.report_images("w", "1", TaskImages(frozenset("b")))
    assert events(tmp_path, "task.usable") == [], "it is being made"
    await scheduler.report_images("w", "1", TaskImages())
    assert [each["task"] for each in events(tmp_path, "task.unusable")] == ["a", "b"]
    assert [each["task"] for each in events(tmp_path, "task.usable")] == ["b"]
    assert "b" in tasks_of(await take(scheduler, MANY))


async def test_a_task_is_kept_while_one_worker_can_start_it(tmp_path: Path, buffer: FakeBuffer) -> None:
    """Whether that worker has reported all its images, has none of its own, or has not told a new scheduler yet."""
    scheduler = make(tmp_path, buffer, AdmissionMode.ASYNC)
    await scheduler.register_worker("v", "1")
    await take(scheduler, MANY, "v")
    await scheduler.report_images("w", "1", TaskImages(failed={"b": "step 1"}))
    await train(scheduler)
    assert events(tmp_path, "task.unusable") == []
    assert "b" not in tasks_of(await take(scheduler, 2 * SIZE, "w"))
    assert "b" in tasks_of(await take(scheduler, MANY, "v"))
    await scheduler.remove_worker("v")
    assert [each["task"] for each in events(tmp_path, "task.unusable")] == ["b"], "the other cannot start it"


async def test_a_run_without_a_usable_task_ends_and_says_why(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    await scheduler.report_images("w", "1", TaskImages(failed=dict.fromkeys(TASKS, "step 1")))
    with pytest.raises(ExceptionGroup) as raised:
        await scheduler.run()
    (error,) = iterate_leaf_errors(raised.value)
    assert isinstance(error, InfraError)
    assert "none of the 5 tasks can be used" in str(error)


async def test_a_task_at_fault_in_every_attempt_is_drawn_no_more(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    await train(scheduler)
    first, *_ = await take(scheduler, free=1)
    await scheduler.report_failed(first, InfraFailure.TASK_FAULT, "set-up failed")
    assert events(tmp_path, "task.unusable") == [], "it is attempted again"
    again, *_ = await take(scheduler, free=1)
    await scheduler.report_failed(again, InfraFailure.TASK_FAULT, "set-up failed")
    (event,) = events(tmp_path, "task.unusable")
    assert (event["task"], event["reason"]) == ("a", "set-up failed")


async def test_a_task_at_fault_stays_excluded_though_its_image_failed_first_and_is_made(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    await train(scheduler)
    first, *_ = await take(scheduler, free=1)
    await scheduler.report_images("w", "1", TaskImages(failed={"a": "step 1"}))
    for _ in range(2):
        await scheduler.report_failed(first, InfraFailure.TASK_FAULT, "set-up failed")
        first, *_ = await take(scheduler, free=1)
    await scheduler.report_images("w", "1", TaskImages())
    assert events(tmp_path, "task.usable") == []
    assert "a" not in tasks_of(await take(scheduler, MANY))


async def test_a_dead_workers_report_is_forgotten(tmp_path: Path, buffer: FakeBuffer) -> None:
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    await scheduler.report_images("w", "1", TaskImages(frozenset(TASKS)))
    await train(scheduler)
    assert await take(scheduler) == []
    await scheduler.register_worker("w", "2")
    await scheduler.report_images("w", "1", TaskImages(frozenset(TASKS)))
    assert await scheduler.acquire_requests("w", "2", MANY, 0.0)


async def test_an_evaluation_waits_for_its_images_and_tries_those_that_failed(
    tmp_path: Path, buffer: FakeBuffer
) -> None:
    scheduler = make(tmp_path, buffer)
    await scheduler.register_worker("w", "1")
    plan = EvaluationPlan("before", ("x", "y", "z"), attempts=1, greedy=0, seed=0)
    async with asyncio.TaskGroup() as group:
        evaluation = group.create_task(scheduler.run_evaluation(plan))
        await asyncio.sleep(0)
        order = await scheduler.report_images("w", "1", TaskImages(frozenset("y"), {"z": "step 1"}))
        assert list(order) == ["x", "y", "z", *TASKS], "what is evaluated now is needed first"
        assert [request.task for request in await take(scheduler)] == ["x", "z"]
        await scheduler.report_images("w", "1", TaskImages())
        assert [request.task for request in await take(scheduler)] == ["y"]
        evaluation.cancel()
