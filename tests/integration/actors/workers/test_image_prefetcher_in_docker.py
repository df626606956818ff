"""If these fail, a run waits for the slowest image before its first episode, or a broken image is built for ever."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.scheduler.settings import SchedulerRunState, SchedulerSettings, SchedulerSpec
from actors.workers.image_prefetcher import ImagePrefetcher
from protocol.events import EventLog
from protocol.staleness import AdmissionLimit, AdmissionMode
from protocol.trajectory import RolloutRequest
from sandbox.docker.engine import DockerEngine
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.images.image_names import image_for
from sandbox.images.store import ImageSettings, ImageStore, open_ledger
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_buffer import FakeBuffer

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
SOON_S, SIZE = 60.0, 2


@pytest_asyncio.fixture(loop_scope="session")
async def engine(docker_engine: SandboxHost) -> AsyncGenerator[DockerEngine]:
    async with DockerEngine(docker_engine.docker_url) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def store(docker_engine: SandboxHost, engine: DockerEngine, tmp_path: Path) -> AsyncGenerator[ImageStore]:
    settings = ImageSettings(tmp_path, docker_engine.base_image, failure_memory_s=0.1)
    opened = await ImageStore.open(engine, settings)
    yield opened
    await opened.prune(0)


def task(name: str, host: SandboxHost, rest: str = "") -> Task:
    dockerfile = f"FROM {host.base_image}\nLABEL once={uuid.uuid4().hex}\n{rest}\n"
    build = ImageBuild({"Dockerfile": dockerfile.encode()})
    return Task(name, "", build=build, network=TaskNetwork(build=NetworkMode.NONE))


async def training_scheduler(run_dir: Path, tasks: tuple[str, ...]) -> RolloutScheduler:
    settings = SchedulerSettings(groups_per_step=len(tasks), group_size=SIZE)
    scheduler = RolloutScheduler(
        SchedulerSpec(
            run_id="run",
            run_dir=run_dir,
            node="node-0",
            tasks=tasks,
            settings=settings,
            admission=AdmissionLimit(AdmissionMode.SYNC, len(tasks), 0),
            total_steps=1,
            request_deadline_s=SOON_S,
            seed=0,
            order=TaskOrder.LISTED,
            tuning=settings.tuning(publish_every=1),
        ),
        LocalRemote(FakeBuffer()),
    )
    await scheduler.register_worker("w", "1")
    await scheduler.set_run_state(SchedulerRunState(training=True))
    return scheduler


def prefetcher(scheduler: RolloutScheduler, store: ImageStore, run_dir: Path, *tasks: Task) -> ImagePrefetcher:
    by_name = {each.id: each for each in tasks}
    return ImagePrefetcher(LocalRemote(scheduler), "w", "1", by_name, store, EventLog(run_dir, "w", "node-0"))


async def take(scheduler: RolloutScheduler, wait_s: float = SOON_S) -> list[str]:
    requests: list[RolloutRequest] = await scheduler.acquire_requests("w", "1", SIZE, wait_s)
    return [each.task for each in requests if each.sample == 0]


def events(run_dir: Path, kind: str) -> list[dict[str, object]]:
    lines = map(orjson.loads, (run_dir / "events" / "scheduler.jsonl").read_bytes().splitlines())
    return [line for line in lines if line["kind"] == kind]


async def test_ready_tasks_start_while_others_are_built_and_a_broken_one_is_left_out(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore, tmp_path: Path
):
    slow, ready, broken = (
        task(name, docker_engine, rest) for name, rest in (("slow", ""), ("ready", ""), ("broken", "RUN exit 7"))
    )
    async with store.reserve(ready):
        pass
    scheduler = await training_scheduler(tmp_path, ("slow", "broken", "ready"))
    ledger = await open_ledger(engine, tmp_path)
    with ledger.lock_exclusively(image_for(slow), "build"):  # its build cannot begin
        async with prefetcher(scheduler, store, tmp_path, slow, ready, broken).prefetching():
            assert await take(scheduler) == ["ready"]
            while not events(tmp_path, "task.unusable"):  # noqa: ASYNC110  the scheduler tells nobody
                await asyncio.sleep(0.05)
            assert await take(scheduler, 0.0) == []
            assert not await engine_calls.find_image_id(engine, image_for(slow))
    async with prefetcher(scheduler, store, tmp_path, slow, ready, broken).prefetching():
        assert await take(scheduler) == ["slow"]
        assert await engine_calls.find_image_id(engine, image_for(slow))
    (left_out,) = events(tmp_path, "task.unusable")
    assert left_out["task"] == "broken"
    assert "step 3/3: RUN exit 7" in str(left_out["reason"])
    assert events(tmp_path, "images.counted")[0]["ready"] == 1


async def test_what_does_not_fit_into_the_budget_is_made_when_an_episode_needs_it(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore, tmp_path: Path
):
    tasks = [task(name, docker_engine, "COPY Dockerfile /x") for name in "ab"]
    scheduler = await training_scheduler(tmp_path, ("a", "b"))
    small = await ImageStore.open(engine, replace(store.settings, quota_bytes=1))
    async with prefetcher(scheduler, small, tmp_path, *tasks).prefetching():
        assert [*await take(scheduler), *await take(scheduler)] == ["a", "b"]
    (event,) = [
        line
        for line in map(orjson.loads, (tmp_path / "events" / "w.jsonl").read_bytes().splitlines())
        if line["kind"] == "images.on_demand"
    ]
    assert "budget of images is full" in event["reason"]


async def test_an_image_that_is_not_found_is_tried_twice(docker_engine: SandboxHost, store: ImageStore, tmp_path: Path):
    absent = Task("absent", "", image="127.0.0.1:9/absent")  # nobody serves a registry there
    scheduler = await training_scheduler(tmp_path, ("absent", "plain"))
    async with prefetcher(scheduler, store, tmp_path, absent, Task("plain", "")).prefetching():
        assert await take(scheduler) == ["plain"]
        while not events(tmp_path, "task.unusable"):  # noqa: ASYNC110  the scheduler tells nobody
            await asyncio.sleep(0.05)
    assert store.statistics().failed == 2
