"""If this fails, a run waits for all images before its first episode, or one broken image ends it."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from launch.bench.coin_tasks import coin_task
from sandbox.docker.engine import DockerEngine
from sandbox.host_record import SandboxHost
from sandbox.images.image_names import built_image_name
from sandbox.images.ledger import ImageLedger
from sandbox.images.store import open_ledger
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances
from tests.support.tasks.coin_tasks import write_coin_tasks

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


def write_built_task(folder: Path, name: str, host: SandboxHost, step: str) -> str:
    """Return the name of the task's image."""
    dockerfile = f"FROM {host.base_image}\nLABEL once={uuid.uuid4().hex}\n{step}\nWORKDIR /app\n"
    build = ImageBuild({"Dockerfile": dockerfile.encode()})
    coin = coin_task(name, f"Create the file {name}.txt with the text red blue.", "true\n")
    write_task(replace(coin, build=build, network=TaskNetwork(build=NetworkMode.NONE)), folder)
    return built_image_name(build)


async def ledger_of(host: SandboxHost) -> ImageLedger:
    async with DockerEngine(host.docker_url) as engine:
        return await open_ledger(engine, host.home)


def test_a_run_begins_with_ready_tasks_and_leaves_out_the_one_that_cannot_be_built(
    docker_engine: SandboxHost, mini_runs: MiniRuns, tmp_path: Path
) -> None:
    tasks = write_coin_tasks(tmp_path / "tasks", count=6)
    slow = write_built_task(tasks, "slow", docker_engine, "RUN true")
    write_built_task(tasks, "broken", docker_engine, "RUN exit 7")
    keys = ("--set", f"data.path={tasks}", "--set", "evaluation.tasks_per_family=0", "--steps", "3")
    with asyncio.run(ledger_of(docker_engine)).lock_exclusively(slow, "build"):  # its build cannot begin
        run = mini_runs.start("images", *keys)
        run.wait_step(1)
        assert "slow" not in {each["task"] for each in run.events("episode.started")}
        assert run.events("images.counted")[-1]["ready"] == 6
    assert run.succeed()["steps"] == 3
    assert_accounting_balances(run.path)
    last = run.events("images.counted")[-1]
    assert (last["tasks"], last["ready"], last["failed"]) == (8, 7, 1)
    (left_out,) = run.events("task.unusable")
    assert left_out["task"] == "broken"
    assert "RUN exit 7" in left_out["reason"]
    assert "broken" not in {each["task"] for each in run.events("episode.started")}
    assert "images: 6 of 8 ready" in run.stderr
