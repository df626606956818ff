"""If these fail, whoever starts a container on the engine makes a good run fail, or a run's remains are not named."""

from __future__ import annotations

import asyncio
import os

import pytest

from launch.run.docker_leaks import find_leaks, take_inventory
from sandbox.docker import owner
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files import shared_volumes
from sandbox.docker.labels import OWNER_LABEL, POOL_LABEL, RUN_LABEL
from sandbox.docker.leaks import inventory_of_others, inventory_of_strangers, wait_for_leaks
from sandbox.host_record import SandboxHost

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]


async def test_only_what_carries_a_runs_label_counts_and_its_removal_is_told(docker_engine: SandboxHost):
    run_id = f"leaking-{os.getpid()}"
    async with DockerEngine(docker_engine.docker_url) as engine:

        async def create(labels: dict[str, str]) -> str:
            return await engine.create(ContainerSpec(docker_engine.base_image, docker_engine.toolchain, labels))

        before = await take_inventory()
        stranger = await create({})
        own = await create({RUN_LABEL: run_id, POOL_LABEL: run_id})
        another = await create({RUN_LABEL: f"{run_id}-2", POOL_LABEL: run_id})
        volumes = {
            f"{run_id}-volume-of-the-run": {OWNER_LABEL: "nobody", RUN_LABEL: run_id},
            f"{run_id}-volume-of-another": {OWNER_LABEL: "nobody", RUN_LABEL: f"{run_id}-2"},
            f"{run_id}-volume-of-a-stranger": {},
        }
        for name, labels in volumes.items():
            await engine.docker.volumes.create({"Name": name, "Labels": labels})
        of_the_living = await create({POOL_LABEL: run_id, OWNER_LABEL: owner.owner_of_process(os.getppid())})
        of_the_dead = await create({POOL_LABEL: run_id, OWNER_LABEL: owner.owner_of_this_process() + "0"})
        try:
            leaks = await find_leaks(before, run_id, patience_s=0)
            assert leaks.of_run.volumes == {f"{run_id}-volume-of-the-run"}
            assert leaks.of_others.volumes & volumes.keys() == {f"{run_id}-volume-of-a-stranger"}
            assert leaks.of_run.containers == {own}
            assert stranger in leaks.of_others.containers
            assert not {own, another} & leaks.of_others.containers
            assert before is not None
            of_pools = await wait_for_leaks(
                engine, before, patience_s=0, list_others=lambda: inventory_of_strangers(engine)
            )
            assert stranger not in of_pools.containers
            assert {own, another} <= of_pools.containers
            others = await inventory_of_others(engine)
            assert {stranger, of_the_living} <= others.containers
            assert not {own, another, of_the_dead} & others.containers
            removal = await asyncio.create_subprocess_exec("sh", "-c", leaks.removal, stdout=asyncio.subprocess.DEVNULL)
            assert await removal.wait() == 0
            assert not (await find_leaks(before, run_id)).of_run
        finally:
            for container in (stranger, own, another, of_the_living, of_the_dead):
                await engine.remove(container)
            for name in volumes:
                await shared_volumes.remove_volume(engine, name)
