"""If these fail, a data set's images are made twice, one broken task stops the others, or images fill the disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from protocol.cli.exit_codes import EXIT_INTERRUPTED
from sandbox.docker.engine import DockerEngine
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.images.image_names import images_of
from sandbox.images.prefetch import ImageBudgetError, ImagePrefetch, ImageState, PrefetchedImage, prefetched_images
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TaskService, TestsEnvironment
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.commands import FinishedCommand, call_command, call_json, run_json

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]


def interrupted_after_lines(count: int, *arguments: str) -> FinishedCommand:
    """Run Python and press Ctrl-C after ``count`` lines on standard error."""
    with subprocess.Popen([sys.executable, *arguments], stdout=-1, stderr=-1, text=True) as running:
        assert running.stderr is not None
        lines = [running.stderr.readline() for _ in range(count)]
        running.send_signal(signal.SIGINT)
        stdout, rest = running.communicate()
    return FinishedCommand(running.returncode, stdout, "".join(lines) + rest)


@pytest_asyncio.fixture(loop_scope="session")
async def store(docker_engine: SandboxHost, engine: DockerEngine, tmp_path: Path) -> AsyncGenerator[ImageStore]:
    opened = await ImageStore.open(engine, ImageSettings(tmp_path, docker_engine.base_image, failure_memory_s=0))
    yield opened
    await opened.prune(0)


@pytest.fixture
def host_folder(docker_engine: SandboxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give commands a cache folder, and so images, of their own."""
    record = {"docker_url": docker_engine.docker_url, "base_image": docker_engine.base_image, "engine_owner": ""}
    (tmp_path / "host.json").write_text(json.dumps({**record, "toolchain": str(docker_engine.toolchain)}))
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path))
    return tmp_path


def build_of(host: SandboxHost, rest: str = "", big: bytes = b"") -> ImageBuild:
    dockerfile = f"FROM {host.base_image}\nLABEL once={uuid.uuid4().hex}\n{rest}\n"
    return ImageBuild({"Dockerfile": dockerfile.encode(), "big": big})


def task(name: str, build: ImageBuild) -> Task:
    return Task(name, "say hi", build=build, network=TaskNetwork(build=NetworkMode.NONE), run_tests="#!/bin/sh\n")


async def containers_that_run(engine: DockerEngine, command: str) -> int:
    listed = await engine.docker.containers.list(all="1")
    return sum(command in each["Command"] for each in listed)


def images_for(*tasks: Task) -> list[PrefetchedImage]:
    return prefetched_images(each for one in tasks for each in images_of(one))


async def test_the_images_of_a_task_are_those_of_its_services_and_tests_too(docker_engine: SandboxHost):
    shared, tests = build_of(docker_engine), build_of(docker_engine)
    whole = replace(
        task("a", shared),
        services=(TaskService("db", image="db:1"), TaskService("web", build=shared)),
        tests_environment=TestsEnvironment(build=tests),
    )
    images = images_for(whole, task("b", shared), Task("plain", ""))
    assert [each.needed_by for each in images] == [["a", "a/web", "b"], ["a/db"], ["a/tests"]]


async def test_each_image_is_made_once_and_a_failed_one_does_not_stop_the_others(
    docker_engine: SandboxHost, store: ImageStore
):
    shared, other = build_of(docker_engine), build_of(docker_engine)
    bad = build_of(docker_engine, "RUN echo the reason && exit 7")
    images = images_for(task("a", shared), task("broken", bad), task("b", shared), task("c", other))
    changes: list[tuple[str, ImageState]] = []
    async with ImagePrefetch(store, images, lambda each: changes.append((each.title, each.state))) as prefetch:
        await prefetch.make_missing()
    assert [each.state for each in images] == [ImageState.READY, ImageState.FAILED, ImageState.READY]
    assert store.statistics().built == 2
    assert changes[:2] == [("a and 1 more", ImageState.MAKING), ("broken", ImageState.MAKING)]
    assert "step 3/3: RUN echo the reason && exit 7" in str(images[1].error)
    assert images[0].progress.step.startswith("step 2/2: LABEL")
    again = images_for(task("a", shared), task("broken", bad), task("c", other))
    async with ImagePrefetch(store, again) as prefetch:
        assert [each.state for each in again] == [ImageState.READY, ImageState.WAITING, ImageState.READY]


async def test_a_full_budget_stops_the_prefetch_and_evicts_nothing_of_it(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore
):
    old, *tasks = (task(name, build_of(docker_engine, "COPY big /big", os.urandom(1 << 20))) for name in "oabc")
    async with store.reserve(old) as old_image:
        pass
    small = await ImageStore.open(engine, replace(store.settings, quota_bytes=(8 << 20) // 3, concurrency=1))
    images = images_for(*tasks)
    with pytest.raises(ImageBudgetError, match="budget of images is full"):
        async with ImagePrefetch(small, images) as prefetch:
            await prefetch.make_missing()
    assert [each.state for each in images] == [ImageState.READY, ImageState.READY, ImageState.MAKING]
    there = [bool(await engine_calls.find_image_id(engine, name)) for name in (old_image, *(x.name for x in images))]
    assert there == [False, True, True, False], "the old image makes room, the budget holds, the prefetch's own stay"


@pytest.mark.slow
async def test_an_interrupted_prefetch_leaves_nothing_half_made_and_the_next_makes_the_rest(
    docker_engine: SandboxHost, engine: DockerEngine, tmp_path: Path, host_folder: Path
):
    tasks = tmp_path / "tasks"
    for name, step in (("quick", "RUN true"), ("slow", "RUN sleep 1017")):
        write_task(task(name, build_of(docker_engine, step)), tasks)
    done = await asyncio.to_thread(interrupted_after_lines, 2, "-m", "sandbox.images", "prefetch", str(tasks))
    assert done.returncode == EXIT_INTERRUPTED
    plan, ready, rest = done.stderr.split("\n", 2)
    assert plan.startswith("images: 2, of which 0 exist; ")
    assert ready.startswith("ready: quick, ")
    assert (
        f"1 of 2 images are ready; missing: slow; `longshore images prefetch {tasks}` continues with the rest" in rest
    )
    async with asyncio.timeout(60):
        while await containers_that_run(engine, "sleep 1017"):  # noqa: ASYNC110  the daemon tells nobody
            await asyncio.sleep(0.1)
    again = await asyncio.to_thread(run_json, "sandbox.images", "prefetch", tasks, "--only", "quick")
    assert (again.exit_code, again.output["existing"], again.output["built"]) == (0, 1, 0)
    await asyncio.to_thread(run_json, "sandbox.images", "prune")


@pytest.mark.usefixtures("host_folder")
async def test_a_budget_holds_although_nothing_is_left_to_make(
    docker_engine: SandboxHost, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    for name in ("a", "b"):
        write_task(task(name, build_of(docker_engine, "COPY big /big", os.urandom(1 << 20))), tmp_path / "tasks")
    prefetch = ("sandbox.images", "prefetch", tmp_path / "tasks")
    made = (await asyncio.to_thread(call_json, capfd, *prefetch)).output
    of_task = {each["task"]: each["image"] for each in made["images"]}
    assert made["evicted"] == []
    again = (await asyncio.to_thread(call_json, capfd, *prefetch, "--only", "a", "--budget-gb", "0.0015")).output
    assert (again["existing"], again["evicted"]) == (1, [of_task["b"]])
    last = (await asyncio.to_thread(call_json, capfd, *prefetch, "--only", "a", "--budget-gb", "0.000001")).output
    assert last["evicted"] == [], "what was asked for stays"
    assert (await asyncio.to_thread(call_json, capfd, "sandbox.images", "prune")).output["evicted"] == [of_task["a"]]


@pytest.mark.usefixtures("host_folder")
async def test_a_failed_build_is_named_with_its_tasks_and_the_command_that_repeats_it(
    docker_engine: SandboxHost, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    bad = build_of(docker_engine, "RUN ls /absent")
    for name in ("a", "b"):
        write_task(task(name, bad), tmp_path / "tasks")
    done = await asyncio.to_thread(call_command, capfd, "sandbox.images", "prefetch", tmp_path / "tasks")
    assert done.returncode == 1
    assert done.stdout.startswith("a, b: could not build the image longshore/build:")
    assert ": step 3/3: RUN ls /absent\n" in done.stdout
    assert "cannot access '/absent'" in done.stdout
    assert f"\n  again: longshore images prefetch {tmp_path}/tasks --only a\n" in done.stdout
    assert "failed: a and 1 more, step 3/3: RUN ls /absent, " in done.stderr
