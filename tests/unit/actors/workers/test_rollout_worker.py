"""If these fail, a run that has ended leaves sandboxes behind, its engines stop under episodes that still run, or what
went wrong with an episode is blamed on the wrong party."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import orjson
import pytest

from actors.engines.messages import EngineUnavailable
from actors.rewards.composite import CompositeReward, open_reward
from actors.rewards.episode_result import EpisodeResult, ModelTurn
from actors.rewards.settings import JudgeSettings, JudgeSpec, RewardSettings, RewardSpec
from actors.rollout.stages import StageOverrun
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers import attempt_runner, rollout_worker, sandbox_source
from actors.workers.episode_runner import EpisodeRunner
from actors.workers.rollout_worker import RolloutWorker
from actors.workers.sandbox_source import AbsentSandboxSource, EpisodeSandboxSource, LocalSandboxSource
from protocol.activity import ActivityLog
from protocol.errors import InfraError
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog
from protocol.journal import AppendOutcome
from protocol.stream import NotAcknowledgedError
from protocol.stream.sender import OnAcknowledged
from protocol.trajectory import EpisodeStatus, GroupId, InfraFailure, Reward, RolloutRequest, Trajectory
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost, SandboxStartError, SandboxVanished, TaskFault
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import LocalSandbox
from sandbox.tasks.task import Task
from tests.support.actors.episodes import BINARY_REWARD
from tests.support.actors.worker_specs import worker_spec
from tests.support.fakes.fake_judge import unreachable_url
from tests.support.runs.trajectories import make_trajectory


class FakeWorkerPool:
    """Takes its time to remove its sandboxes."""

    def __init__(self, _: PoolSettings) -> None:
        self.gone = False
        self.images = SimpleNamespace()

    async def __aenter__(self) -> Self:
        POOLS.append(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.05)
        self.gone = True

    async def open(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(container="c1")

    async def close(self, _: SimpleNamespace) -> None:
        """It does not end."""
        await asyncio.Event().wait()

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(live=0, starting=0, waiting=0, started=0)


class FakeTrajectorySender:
    """Has a trajectory under way, which the buffer acknowledges a little later."""

    def __init__(self, *_: object, on_acknowledged: OnAcknowledged, **__: object) -> None:
        self.unacknowledged = ["train-g000001-s00"]
        self.on_acknowledged = on_acknowledged

    async def __aenter__(self) -> Self:
        SENDERS.append(self)
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def send(self, trajectory: Trajectory, deadline_s: float) -> AppendOutcome:
        outcome = AppendOutcome.UNKNOWN if trajectory.request.sample else AppendOutcome.APPENDED
        self.on_acknowledged(trajectory.request, outcome)
        return outcome

    async def drain(self, _: float) -> list[str]:
        await asyncio.sleep(0.05)
        self.on_acknowledged(RolloutRequest("r", GroupId(1), 7, 8, "t", 11), AppendOutcome.APPENDED)
        self.unacknowledged.clear()
        return self.unacknowledged


class RequestScheduler:
    """Gives its requests at once, and those that nobody may begin when it is cancelled."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hellos: list[str] = []
        self.requests: list[RolloutRequest] = []
        self.late: list[RolloutRequest] = []
        self.reports: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        """Reports about the requests: (method, *arguments)."""

    async def call(self, method: Callable[..., Any], *arguments: Any) -> object:
        if method is RolloutScheduler.register_worker:
            self.hellos.append(arguments[1])
        if method in {
            RolloutScheduler.report_failed,
            RolloutScheduler.report_finished,
            RolloutScheduler.report_evaluated,
        }:
            self.reports.put_nowait((method, *arguments))
        if method is not RolloutScheduler.acquire_requests:
            return None
        if self.requests:
            return [self.requests.pop(0)]
        self.requested.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if not self.late:
                raise
        return self.late


TASKS = {"t": Task("t", "list")}
POOLS: list[FakeWorkerPool] = []
SENDERS: list[FakeTrajectorySender] = []


def told_by_worker(run_dir: Path) -> list[tuple[str, str]]:
    """(kind, trajectory) of each event about one."""
    lines = map(orjson.loads, (run_dir / "events" / "worker-0-0.jsonl").read_bytes().splitlines())
    return [(line["kind"], line["trajectory"]) for line in lines if "trajectory" in line]


@pytest.fixture
def scheduler() -> RequestScheduler:
    return RequestScheduler()


@pytest.fixture
def made(tmp_path: Path, scheduler: RequestScheduler, monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    POOLS.clear()
    SENDERS.clear()
    monkeypatch.setattr(sandbox_source, "SandboxPool", FakeWorkerPool)
    monkeypatch.setattr(rollout_worker, "TrajectorySender", FakeTrajectorySender)
    monkeypatch.setattr(rollout_worker, "load_chat_format", lambda *_, **__: SimpleNamespace(tokenizer=None))
    spec = worker_spec(tmp_path, cleanup_timeout_s=0.05)
    return RolloutWorker(
        spec, cast("Remote[RolloutScheduler]", scheduler), (cast("Any", SimpleNamespace(name="engine-0")),)
    )


async def test_stop_returns_when_the_sandboxes_are_gone(made: RolloutWorker, scheduler: RequestScheduler) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(made.run({}))
        await scheduler.requested.wait()
        await made.stop()
        assert [pool.gone for pool in POOLS] == [True]


async def test_stop_waits_for_work_that_was_cancelled_before(
    made: RolloutWorker, scheduler: RequestScheduler, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        run = group.create_task(made.run({}))
        await scheduler.requested.wait()
        run.cancel()
        await made.stop()
        assert [pool.gone for pool in POOLS] == [True]
        assert [sender.unacknowledged for sender in SENDERS] == [[]], "an episode that was sent has to be sampled again"
    assert told_by_worker(tmp_path) == [("trajectory.acknowledged", "train-g000001-s07")]


async def test_a_cancelled_episode_is_reported(
    made: RolloutWorker, scheduler: RequestScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the monitor's page would show it as running forever."""
    begun = asyncio.Event()

    async def endless(*_: object) -> Trajectory:
        begun.set()
        await asyncio.sleep(600)
        raise AssertionError

    monkeypatch.setattr(EpisodeRunner, "run", endless)
    scheduler.requests = [RolloutRequest("r", GroupId(1), 0, 8, "t", 11)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(made.run(TASKS))
        await begun.wait()
        await made.cancel_training()
        await made.stop()
    assert ("episode.cancelled", "train-g000001-s00-a0") in told_by_worker(tmp_path)


async def test_cancelling_one_episode_ends_only_that_one(
    made: RolloutWorker, scheduler: RequestScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[int] = []

    async def endless(_: EpisodeRunner, rollout_request: RolloutRequest, task: Task) -> Trajectory:
        begun.append(rollout_request.sample)
        await asyncio.sleep(600)
        raise AssertionError

    monkeypatch.setattr(EpisodeRunner, "run", endless)
    scheduler.requests = [RolloutRequest("r", GroupId(1), sample, 8, "t", 11) for sample in (0, 1)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(made.run(TASKS))
        while len(begun) < 2:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        await made.cancel_attempts(["train-g000001-s00", "train-g000009-s00"])
        while not told_by_worker(tmp_path):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0)
        assert told_by_worker(tmp_path) == [("episode.cancelled", "train-g000001-s00-a0")]
        await made.stop()


async def test_a_request_that_arrives_after_the_stop_is_not_started(
    made: RolloutWorker, scheduler: RequestScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would cancel its episode."""
    begun: list[RolloutRequest] = []

    async def episode(_: EpisodeRunner, request: RolloutRequest, task: Task) -> Trajectory:
        begun.append(request)
        raise AssertionError

    monkeypatch.setattr(EpisodeRunner, "run", episode)
    scheduler.late = [RolloutRequest("r", GroupId(1), 0, 8, "t", 11)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(made.run({}))
        await scheduler.requested.wait()
        await made.stop()
    assert begun == []


async def test_a_worker_that_runs_again_registers_as_a_new_incarnation(
    made: RolloutWorker, scheduler: RequestScheduler
) -> None:
    """Otherwise the scheduler would wait for the requests that the first incarnation held."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        run = group.create_task(made.run({}))
        await scheduler.requested.wait()
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        scheduler.requested.clear()
        group.create_task(made.run({}))
        await scheduler.requested.wait()
        await made.stop()
    first, second = scheduler.hellos
    assert first != second


async def test_a_second_run_call_to_a_running_worker_joins_the_first(
    made: RolloutWorker, scheduler: RequestScheduler
) -> None:
    """A cable that is cut breaks the driver's call and not the work: begun anew beside it, the scheduler would take all
    that it holds for lost."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        run = group.create_task(made.run({}))
        await scheduler.requested.wait()
        again = group.create_task(made.run({}))
        await asyncio.sleep(0)
        assert not again.done()
        await made.stop()
        await run
    assert len(scheduler.hellos) == 1
    assert again.exception() is None


async def test_a_worker_that_ended_before_its_stop_raises_an_error_in_joined_calls(
    made: RolloutWorker, scheduler: RequestScheduler
) -> None:
    """Otherwise it would never be told to run again."""
    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            run = group.create_task(made.run({}))
            await scheduler.requested.wait()
            again = group.create_task(raised_by(made.run({})))
            await asyncio.sleep(0)
            run.cancel()
        assert isinstance(again.result(), InfraError)
        await made.stop()


async def raised_by(call: Awaitable[None]) -> BaseException | None:
    try:
        await call
    except InfraError as error:
        return error
    return None


async def test_a_worker_that_never_ran_stops_at_once(made: RolloutWorker) -> None:
    async with asyncio.timeout(60):
        await made.stop()


def fails_with(error: Exception) -> Callable[..., Any]:
    async def episode(*_: object) -> Trajectory:
        raise error

    return episode


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (SandboxStartError("no container"), InfraFailure.SANDBOX_START),
        (TaskFault("the setup exited 1"), InfraFailure.TASK_FAULT),
        (SandboxLost("the daemon is gone"), InfraFailure.SANDBOX_LOST),
        (DockerEngineError("could not look into it"), InfraFailure.SANDBOX_LOST),
        (SandboxVanished("PID 1 is gone"), InfraFailure.SANDBOX_VANISHED),
        (EngineUnavailable("no server"), InfraFailure.ENGINE),
        (StageOverrun("the agent's"), InfraFailure.DEADLINE),
        (TimeoutError(), InfraFailure.DEADLINE),
        (NotAcknowledgedError("no answer"), InfraFailure.UNEXPECTED),
        (OSError("no space"), InfraFailure.UNEXPECTED),
        (ZeroDivisionError("a defect"), InfraFailure.UNEXPECTED),
    ],
)
async def test_a_failed_episode_is_reported_with_the_failure_of_its_cause(
    made: RolloutWorker,
    scheduler: RequestScheduler,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    failure: InfraFailure,
) -> None:
    """A sandbox that vanishes twice is the agent's doing, one that is lost never is."""
    monkeypatch.setattr(EpisodeRunner, "run", fails_with(error))
    monkeypatch.setattr(attempt_runner, "MAX_BACK_OFF_S", 0.0)
    requests = [RolloutRequest("r", GroupId(1), sample, 8, "t", 11) for sample in range(2)]
    scheduler.requests = [*requests]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(made.run(TASKS))
        for rollout_request in requests:
            method, given_back, why, detail = await scheduler.reports.get()
            assert (method, given_back, why) == (RolloutScheduler.report_failed, rollout_request, failure)
            assert str(error) in detail
        await made.stop()


async def test_each_finished_episode_is_reported_and_only_durable_ones_as_acknowledged(
    made: RolloutWorker, scheduler: RequestScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def episode(_: EpisodeRunner, rollout_request: RolloutRequest, task: Task) -> Trajectory:
        return replace(make_trajectory(reward=1.0), request=rollout_request, reward=Reward(0.9, {}))

    monkeypatch.setattr(EpisodeRunner, "run", episode)
    wanted, late = (RolloutRequest("r", GroupId(1), sample, 8, "t", 11) for sample in range(2))
    evaluated = replace(wanted, purpose="before")
    scheduler.requests = [wanted, late, evaluated]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(made.run({"t": Task("t", "list", family="count")}))
        reports = [await scheduler.reports.get() for _ in range(3)]
        await made.stop()
    assert [each[:2] for each in reports] == [
        (RolloutScheduler.report_finished, wanted),
        (RolloutScheduler.report_finished, late),
        (RolloutScheduler.report_evaluated, evaluated),
    ]
    record = reports[2][2]
    assert isinstance(record, AttemptRecord)
    assert record.verdict is not None
    assert (record.task, record.family, record.greedy, record.versions) == ("t", "count", False, (0,))
    assert (record.passed, record.verdict.reward, record.usage.completion_tokens) == (True, 0.9, 5)
    assert told_by_worker(tmp_path) == [
        ("trajectory.acknowledged", wanted.trajectory_id),
        ("trajectory.rejected", late.trajectory_id),
        ("trajectory.acknowledged", "train-g000001-s07"),
    ], "the last one while the sender was drained"


def runner(reward: CompositeReward, sandboxes: EpisodeSandboxSource, run_dir: Path = Path()) -> EpisodeRunner:
    return EpisodeRunner(
        spec=worker_spec(run_dir, cleanup_timeout_s=0.05),
        agent=cast("Any", SimpleNamespace(tools={})),
        chat=cast("Any", None),
        generate=cast("Any", None),
        reward=reward,
        sandboxes=sandboxes,
        harnesses=None,
        environments=None,
        events=EventLog(run_dir, "worker-0-0", "node-0"),
        activity=ActivityLog(run_dir, "worker-0-0", "worker"),
    )


async def test_training_episodes_have_the_runs_reward_and_evaluations_ask_no_judge(tmp_path: Path) -> None:
    """Otherwise a run is trained for something else than its configuration says, or an evaluation waits for a judge."""
    judge = JudgeSpec(JudgeSettings(url=unreachable_url(), model="j", votes=1), "$task $step")
    request = RolloutRequest("r", GroupId(1), 0, 8, "t", 11)
    result = EpisodeResult("do", EpisodeStatus.COMPLETED, (), 0.0, False, 0.0, (ModelTurn("hm"),))
    async with asyncio.timeout(60), open_reward(RewardSpec("tcr", RewardSettings(), judge)) as reward:
        episodes = runner(reward, AbsentSandboxSource(), tmp_path)
        trained = await episodes.reward_for(request).compute_reward(result)
        evaluated = await episodes.reward_for(replace(request, purpose="before")).compute_reward(result)
    assert (trained.reward.total, trained.reward.parts["judge_down"]) == (-1.0, 1.0)
    assert (evaluated.reward.total, "judge_down" in evaluated.reward.parts) == (-1.0, False)


async def test_a_graded_episode_is_kept_if_its_sandbox_is_slow_to_end(tmp_path: Path) -> None:
    sandboxes = LocalSandboxSource(cast("SandboxPool", FakeWorkerPool(cast("PoolSettings", None))))
    episodes = runner(BINARY_REWARD, sandboxes, tmp_path)
    async with (
        asyncio.timeout(60),
        episodes.hold_terminal(RolloutRequest("r", GroupId(1), 0, 8, "t", 11), Task("t", "")) as terminal,
    ):
        assert isinstance(terminal.sandbox, LocalSandbox)
        graded = terminal.sandbox.container
    assert graded == "c1"
    assert b'"sandbox.slow_cleanup"' in (tmp_path / "events" / "worker-0-0.jsonl").read_bytes()
