"""If these fail, images of a private registry cannot be used although `docker login` was done."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.docker.engine import DockerEngine
from sandbox.errors import ImageError
from sandbox.host_record import SandboxHost
from sandbox.images.build_network import BuildNetworkAccess, open_default_network
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.fakes.fake_registry import FakeRegistry

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def registry() -> AsyncGenerator[FakeRegistry]:
    async with FakeRegistry(uuid.uuid4().bytes).served() as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def store(
    docker_engine: SandboxHost, engine: DockerEngine, tmp_path: Path, registry: FakeRegistry
) -> AsyncGenerator[ImageStore]:
    settings = ImageSettings(
        tmp_path,
        docker_engine.base_image,
        failure_memory_s=0,
        docker_config=tmp_path / "c.json",
        allow_registries=(registry.address,),
    )
    opened = await ImageStore.open(engine, settings)
    yield opened
    await opened.prune(0)


def log_in(store: ImageStore, registry: FakeRegistry, password: str) -> None:
    auth = base64.b64encode(f"ann:{password}".encode()).decode()
    store.settings.docker_config.write_text(json.dumps({"auths": {registry.address: {"auth": auth}}}))


async def use(store: ImageStore, task: Task) -> str:
    async with store.reserve(task) as image:
        return image


async def test_an_image_is_pulled_with_the_password_of_dockers_configuration(store: ImageStore, registry: FakeRegistry):
    wanted = Task("t", "", image=f"{registry.address}/private/hello:1")
    with pytest.raises(ImageError, match="no basic auth credentials"):
        await use(store, wanted)
    log_in(store, registry, "hers")
    assert await use(store, wanted) == wanted.image
    assert store.statistics().pulled == 1


async def test_a_build_pulls_its_base_with_the_password(store: ImageStore, registry: FakeRegistry):
    build = ImageBuild({"Dockerfile": f"FROM {registry.address}/private/base:1\nLABEL a=b\n".encode()})
    wanted = Task("t", "", build=build, network=TaskNetwork(build=NetworkMode.NONE))
    log_in(store, registry, "wrong")
    with pytest.raises(ImageError, match=r"step 1/2: FROM 127\.0\.0\.1"):
        await use(store, wanted)
    assert registry.refused
    log_in(store, registry, "hers")
    assert await use(store, wanted)


async def test_a_refused_pull_says_that_the_helper_failed(store: ImageStore, registry: FakeRegistry):
    store.settings = replace(store.settings, allow_registries=())
    store.settings.docker_config.write_text(json.dumps({"credsStore": "absent", "auths": {registry.address: {}}}))
    with pytest.raises(ImageError, match=r"(?s)no basic auth credentials.*docker-credential-absent"):
        await use(store, Task("t", "", image=f"{registry.address}/private/none:1"))


@pytest.mark.parametrize(
    "dockerfile",
    [
        "",
        "ARG BASE={image}\nFROM scratch AS a\nARG BASE=debian\nFROM $BASE\n",
        "FROM scratch\nRUN --mount=type=bind,FROM={image},target=/xq true\n",
        "ARG http_proxy\nFROM ${{http_proxy:+{image}}}\n",
    ],
)
async def test_a_registry_of_this_machine_is_asked_only_if_the_operator_named_it(
    engine: DockerEngine, store: ImageStore, registry: FakeRegistry, dockerfile: str
):
    @asynccontextmanager
    async def with_a_proxy(mode: NetworkMode, hosts: tuple[str, ...]) -> AsyncGenerator[BuildNetworkAccess]:
        async with open_default_network(mode, hosts) as network:
            yield network._replace(args={"http_proxy": "http://proxy.example"})

    settings = replace(store.settings, allow_registries=())
    refusing = await ImageStore.open(engine, settings, with_a_proxy)
    image = f"{registry.address}/private/{'base' if dockerfile else 'hello'}:2"
    build = ImageBuild({"Dockerfile": dockerfile.format(image=image).encode()}) if dockerfile else None
    with pytest.raises(ImageError, match=r"leads to a loopback address.*--allow-registry 127\.0\.0\.1:"):
        await use(refusing, Task("t", "", image="" if build else image, build=build))
    assert not registry.refused
