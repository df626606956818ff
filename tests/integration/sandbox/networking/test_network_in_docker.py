"""If these fail, a task with a database cannot run, an agent reaches forbidden hosts, or networks accumulate."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandbox.docker import owner
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.shared_volumes import list_volumes, temporary_volume
from sandbox.docker.labels import OWNER_LABEL, POOL_LABEL
from sandbox.docker.network.private_networks import list_networks
from sandbox.docker.network.proxy_address import PROXY_HOST, PROXY_PORT
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.egress_proxy.settings import PROXY_ADDRESS, EgressProxySettings
from sandbox.errors import SandboxStartError, TaskFault
from sandbox.host_record import SandboxHost
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.networking.networks import BuildNetworkContainer, SandboxNetworks
from sandbox.networking.service_requests import TaskServiceSettings
from sandbox.networking.services import adopt_services, start_services
from sandbox.pool.orphans import remove_abandoned
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, SharedFolder, TaskService
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 30.0
SERVER = ("/.sbx/busybox", "httpd", "-f", "-p", "8000", "-h", "/etc")


def fetch(host: str, port: int, path: str) -> str:
    """Return a command that prints the answer, or the error."""
    return (
        f"(exec 3<>/dev/tcp/{host}/{port}; printf 'GET {path} HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n' >&3; "
        "timeout 10 cat <&3) 2>&1"
    )


@pytest_asyncio.fixture(loop_scope="session")
async def egress_proxy(tmp_path: Path) -> AsyncGenerator[LazyEgressProxy]:
    async with LazyEgressProxy(tmp_path / "egress_proxy", EgressProxySettings()) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def networks(engine: DockerEngine, docker_engine: SandboxHost, egress_proxy: LazyEgressProxy) -> SandboxNetworks:
    return await SandboxNetworks.open(
        engine, egress_proxy, BuildNetworkContainer(docker_engine.base_image, docker_engine.toolchain)
    )


@pytest_asyncio.fixture(loop_scope="session")
async def images(
    engine: DockerEngine, docker_engine: SandboxHost, networks: SandboxNetworks, tmp_path: Path
) -> ImageStore:
    return await ImageStore.open(engine, ImageSettings(tmp_path, docker_engine.base_image), networks.build_network)


@asynccontextmanager
async def session(engine: DockerEngine, host: SandboxHost, network: str) -> AsyncGenerator[SandboxSession]:
    labels = {POOL_LABEL: f"test-{os.getpid()}"}
    spec = ContainerSpec(host.base_image, host.toolchain, labels, network=network)
    opened = await SandboxSession.start(engine, spec, "/", SessionLimits(120, 120))
    try:
        yield opened
    finally:
        await opened.close()


def service(**facts: object) -> TaskService:
    return dataclasses.replace(TaskService("web", command=SERVER), **facts)


async def test_only_services_answer_on_the_network_and_everything_is_removed_afterwards(
    engine: DockerEngine, docker_engine: SandboxHost, images: ImageStore, networks: SandboxNetworks
):
    settings = TaskServiceSettings(docker_engine.toolchain, {POOL_LABEL: f"test-{os.getpid()}"}, 3600)
    before = await engine.inventory()
    check = f"bash -c {shlex.quote(fetch('127.0.0.1', 8000, '/hostname'))} | grep -q ^web"
    two = (service(healthcheck=check), service(name="other", env={"X": "1"}))
    async with start_services(engine, images, networks, two, settings) as network:
        assert len((await engine.inventory()).networks - before.networks) == 1
        async with session(engine, docker_engine, network) as opened:
            for name in ("web", "other"):
                assert (await opened.run(fetch(name, 8000, "/hostname"), S)).output.splitlines()[-1] == name
            result = await opened.run("getent hosts outside.example; echo looked up $?", S)
            assert "looked up 2" in result.output
            first = "ip=$(getent hosts web | cut -d ' ' -f 1); echo ${ip%.*}.$((${ip##*.} & ~15 | 1))"
            gateway = (await opened.run(first, S)).output.strip()
            reach = f"timeout 3 bash -c '</dev/tcp/{gateway}/22' && echo reached"
            assert "reached" not in (await opened.run(reach, S)).output, "this machine answers on the network"
    after = await engine.inventory()
    assert after.networks == before.networks
    assert not await engine.containers(settings.labels)


async def test_a_task_without_services_makes_no_network(
    engine: DockerEngine, docker_engine: SandboxHost, images: ImageStore, networks: SandboxNetworks
):
    before = await engine.inventory()
    async with start_services(
        engine, images, networks, (), TaskServiceSettings(docker_engine.toolchain, {}, 3600)
    ) as network:
        assert network == ""
        assert await networks.container_network(TaskNetwork(), network) == "none"
        assert (await engine.inventory()).networks == before.networks


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (service(command=("/.sbx/busybox", "false"), healthcheck="true"), "web (exited|ended)"),
        (service(healthcheck="false"), "web was not healthy within 3 s"),
    ],
    ids=["exits", "never healthy"],
)
async def test_a_service_that_does_not_start_is_named_and_leaves_nothing(
    broken: TaskService,
    why: str,
    engine: DockerEngine,
    docker_engine: SandboxHost,
    images: ImageStore,
    networks: SandboxNetworks,
):
    settings = TaskServiceSettings(
        docker_engine.toolchain, {POOL_LABEL: f"test-{os.getpid()}"}, 3600, ready_timeout_s=3
    )
    before = await engine.inventory()
    with pytest.raises(SandboxStartError, match=why):
        async with start_services(engine, images, networks, (broken, service(name="b")), settings):
            pytest.fail("the agent would have started without its service")
    assert (await engine.inventory()).networks == before.networks
    assert not await engine.containers(settings.labels)


async def test_services_that_are_taken_over_are_removed_with_their_network_and_volumes(
    engine: DockerEngine, docker_engine: SandboxHost, images: ImageStore, networks: SandboxNetworks
):
    settings = TaskServiceSettings(docker_engine.toolchain, {POOL_LABEL: f"test-{os.getpid()}"}, 3600)
    sharing = (service(volumes=(SharedFolder("kept", "/kept"),)),)
    async with start_services(engine, images, networks, sharing, settings) as network:
        async with (
            session(engine, docker_engine, network) as opened,
            adopt_services(engine, images, sharing, opened.container),
        ):
            assert [each.name for each in await list_volumes(engine, settings.labels)] == [f"{network}-kept"]
        assert not await engine.containers(settings.labels)
        assert not await list_volumes(engine, settings.labels)
        assert not await list_networks(engine, settings.labels)


OTHER_USER = ("perl", "-MPOSIX", "-e", "POSIX::setuid(7) or die; sleep 1000")
AGAIN = ("/.sbx/busybox", "sleep", "0.1")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"command": OTHER_USER, "capabilities": ("SETUID",)},
        {"command": AGAIN, "restart": "always"},
        {"tty": True, "stdin_open": True},
    ],
    ids=["plain", "as another user without KILL", "started again", "terminal"],
)
async def test_a_service_ends_by_itself_after_its_maximum_lifetime(
    engine: DockerEngine,
    docker_engine: SandboxHost,
    images: ImageStore,
    networks: SandboxNetworks,
    given: dict[str, Any],
):
    labels = {POOL_LABEL: f"test-ends-{os.getpid()}"}
    settings = TaskServiceSettings(docker_engine.toolchain, labels, max_lifetime_s=2)
    services = (service(**given),)
    async with start_services(engine, images, networks, services, settings), asyncio.timeout(60):
        while await engine.containers(labels):  # noqa: ASYNC110  the daemon tells nobody
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_more_private_networks_can_exist_than_the_default_ranges_of_an_engine_allow(
    networks: SandboxNetworks, engine: DockerEngine
):
    before = await engine.inventory()

    async def hold(all_made: asyncio.Barrier) -> None:
        async with networks.private_network({}):
            await all_made.wait()

    barrier = asyncio.Barrier(40)
    async with asyncio.TaskGroup() as group:
        for _ in range(40):
            group.create_task(hold(barrier))
    assert (await engine.inventory()).networks == before.networks


async def test_a_dead_owners_network_and_volume_are_swept_and_a_living_ones_are_not(
    engine: DockerEngine, networks: SandboxNetworks
):
    place, _, _ = owner.owner_of_this_process().rpartition("/")
    mine = {POOL_LABEL: f"test-swept-{os.getpid()}"}
    async with (
        networks.private_network({**mine, OWNER_LABEL: f"{place}/0"}) as dead,
        networks.private_network(mine) as living,
        temporary_volume(engine, f"{dead}-kept", {**mine, OWNER_LABEL: f"{place}/0"}),
        temporary_volume(engine, f"{living}-kept", {**mine, OWNER_LABEL: owner.owner_of_this_process()}),
    ):
        assert await remove_abandoned(engine, POOL_LABEL, mine[POOL_LABEL]) == 2
        assert [each.name for each in await list_volumes(engine, mine)] == [f"{living}-kept"]
        names = {each["Name"] for each in await engine.docker.networks.list()}
        assert dead not in names
        assert living in names


async def test_a_sandbox_with_a_host_that_only_the_operator_may_allow_does_not_start(networks: SandboxNetworks):
    with pytest.raises(TaskFault, match=r"'10\.1\.2\.3': .*only whoever runs the sandboxes"):
        await networks.container_network(TaskNetwork(verify=NetworkMode.PROXY, allowed_hosts=("10.1.2.3",)), "")


async def test_each_phase_has_its_own_network(
    engine: DockerEngine, docker_engine: SandboxHost, networks: SandboxNetworks
):
    async with session(engine, docker_engine, "none") as opened:
        ask = fetch(PROXY_HOST, PROXY_PORT, "/x")
        assert "refused" in (await opened.run(ask, S)).output
        async with networks.phase(opened.container, NetworkMode.PROXY, ("files.example",)) as env:
            assert env["http_proxy"] == PROXY_ADDRESS
            assert "403" in (await opened.run(ask, S)).output
        async with networks.phase(opened.container, NetworkMode.NONE) as env:
            assert env == {}
            assert "refused" in (await opened.run(ask, S)).output


async def test_a_build_behind_the_proxy_reaches_it_and_one_without_network_does_not(
    engine: DockerEngine, docker_engine: SandboxHost, images: ImageStore
):
    def task(mode: NetworkMode) -> Task:
        run = f'RUN test "$http_proxy" = {PROXY_ADDRESS} && grep -q :0C38 /proc/net/tcp'
        dockerfile = f"FROM {docker_engine.base_image}\n{run}\nLABEL a={os.getpid()} network={mode}\n"
        build = ImageBuild({"Dockerfile": dockerfile.encode()})
        return Task(
            id="t", instruction="", build=build, network=TaskNetwork(build=mode, allowed_hosts=("files.example",))
        )

    with pytest.raises(SandboxStartError, match="non-zero code"):
        async with images.reserve(task(NetworkMode.NONE)):
            pytest.fail("the build saw a proxy")
    async with images.reserve(task(NetworkMode.PROXY)) as image:
        assert image
    assert await images.prune(0) == (image,)
    assert not await engine.containers({POOL_LABEL: "build", OWNER_LABEL: owner.owner_of_this_process()})
