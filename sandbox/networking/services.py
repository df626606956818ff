"""A task's other containers (a database, a web server), on a private network with the agent's, each under its own name.

Volumes that they share with each other or the agent's container belong to the session too; as in Docker Compose, all
containers that have one are created, which fills it from their images, before any is started.

They start before the agent, each after those on which it depends, and are removed after it with their network. If every
process that knows them dies, a service ends by itself after the session's maximum, and a later clean-up removes its
network, unless another process takes both over (:func:`adopt_services`). A task without services has no private
network.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import NamedTuple

from protocol.errors import UserError
from protocol.processes.cancellation import call_with_undo
from sandbox.docker import owner
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.shared_volumes import list_volumes, remove_volume, temporary_volume
from sandbox.docker.labels import NETWORK_LABEL, OWNER_LABEL, SERVICE_LABEL
from sandbox.docker.network import private_networks
from sandbox.docker.network.private_networks import MAX_SERVICES
from sandbox.docker.retry import DockerEngineError, Json
from sandbox.errors import SandboxLost, SandboxStartError, TaskFault
from sandbox.images.store import ImageStore
from sandbox.networking.networks import SandboxNetworks
from sandbox.networking.service_requests import (
    HEALTH_INTERVAL_S,
    TaskServiceSettings,
    image_config,
    service_request,
    volume_mounts,
)
from sandbox.tasks.service_order import order_services
from sandbox.tasks.task_containers import ServiceCondition, SharedFolder, TaskService

_NO_CHECK = {"Status": ""}
_READY = ("healthy", "none", "")
"""The daemon's words for the health of a service that is ready: ``none``, or nothing, where it has no check."""
_IMPOSSIBLE = re.compile("unable to find (user|group)|not a directory|chdir to cwd")
"""Matches the daemon's words for a user or a folder that a container cannot have."""


class AgentVolumes(NamedTuple):
    """The folders that the agent's container shares with services."""

    image: str = ""
    folders: tuple[SharedFolder, ...] = ()


_NO_VOLUMES = AgentVolumes()


@asynccontextmanager
async def start_services(
    engine: DockerEngine,
    images: ImageStore,
    networks: SandboxNetworks,
    services: Sequence[TaskService],
    settings: TaskServiceSettings,
    *,
    agent: AgentVolumes = _NO_VOLUMES,
) -> AsyncGenerator[str]:
    """Start the services; yields the name of their private network, empty when there are none.

    Raises UserError for more services than a network has room for, SandboxStartError, DockerEngineError.
    """
    if not services:
        yield ""
        return
    if len(services) > MAX_SERVICES:
        raise UserError(f"a task has at most {MAX_SERVICES} services beyond its own container, not {len(services)}")
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(networks.private_network(settings.labels))
        labels = {OWNER_LABEL: owner.owner_of_this_process(), **settings.labels, NETWORK_LABEL: network}
        shared = [*agent.folders, *(each for service in services for each in service.volumes)]
        for name in sorted({each.name for each in volume_mounts(network, shared)}):
            await stack.enter_async_context(temporary_volume(engine, name, labels))
        created: dict[str, str] = {}
        for service in services:
            image = await stack.enter_async_context(images.reserve(service))
            body = service_request(service, image, await image_config(engine, image), network, settings)
            with _naming_faults(service):
                container = await stack.enter_async_context(_container(engine, f"create service {service.name}", body))
            created[service.name] = container
        if agent.folders:
            mounts = [each.as_mount() for each in volume_mounts(network, agent.folders)]
            body = {"Image": agent.image, "Cmd": ["true"], "Labels": labels, "HostConfig": {"Mounts": mounts}}
            async with _container(engine, "fill the shared volumes", body):
                pass
        await _start_in_order(engine, services, created, settings.ready_timeout_s)
        yield network


@asynccontextmanager
async def adopt_services(
    engine: DockerEngine, images: ImageStore, services: Sequence[TaskService], container: str
) -> AsyncGenerator[str]:
    """Take over the services of a container that an earlier process left, and remove all of them at the end.

    Yields the name of their network, empty for none. Raises SandboxLost if one of them no longer runs,
    DockerEngineError.
    """
    if not services:
        yield ""
        return
    network = _network_of(await engine.inspect(container))
    containers = await engine.containers({NETWORK_LABEL: network})
    try:
        left = [each.labels.get(SERVICE_LABEL) for each in containers if each.state == "running"]
        missing = [service.name for service in services if service.name not in left and not service.ends]
        if missing:
            raise SandboxLost(f"services of container {container[:12]} no longer run: {', '.join(missing)}")
        async with AsyncExitStack() as stack:
            for service in services:
                await stack.enter_async_context(images.keep(service))
            yield network
    finally:
        await asyncio.shield(_removed(engine, [container, *(each.id for each in containers)], network))


async def inspect_services(engine: DockerEngine, description: Json) -> list[Json]:
    """Return the daemon's description of each service of a container. Raises DockerEngineError."""
    network = _network_of(description)
    containers = await engine.containers({NETWORK_LABEL: network}) if network else ()
    return [await engine.inspect(each.id) for each in containers]


def _network_of(description: Json) -> str:
    """Return the private network that a container is on; empty for none."""
    joined: Json = description["NetworkSettings"]["Networks"]
    return next((name for name in joined or () if name.startswith(private_networks.NETWORK_PREFIX)), "")


async def _removed(engine: DockerEngine, containers: Sequence[str], network: str) -> None:
    for each in containers:
        await engine.remove(each)
    if network:
        for volume in await list_volumes(engine, {NETWORK_LABEL: network}):
            await remove_volume(engine, volume.name)
        await private_networks.remove_network(engine, network)


@contextmanager
def _naming_faults(service: TaskService) -> Generator[None]:
    """Raise TaskFault where the daemon refuses what the service asks for."""
    try:
        yield
    except DockerEngineError as error:
        if _IMPOSSIBLE.search(str(error)) or (service.ulimits and "rlimit" in str(error)):
            raise TaskFault(f"service {service.name} cannot have its user, folder or ulimits: {error}") from error
        raise


@asynccontextmanager
async def _container(engine: DockerEngine, what: str, body: Json) -> AsyncGenerator[str]:
    container = await call_with_undo(lambda: engine.create_from_body(what, body), engine.remove)
    try:
        yield container
    finally:
        await asyncio.shield(engine.remove(container))


async def _start_in_order(
    engine: DockerEngine, services: Sequence[TaskService], created: Mapping[str, str], ready_s: float
) -> None:
    """Start each service once those on which it depends are as it needs them, and wait until all are ready.

    What has ended as it should is removed.
    """
    by_name = {each.name: each for each in services}
    for service in order_services(services):
        for other, condition in service.depends_on.items():
            if condition is not ServiceCondition.STARTED:
                await _wait_until_ready(engine, by_name[other], created[other], ready_s)
        with _naming_faults(service):
            await engine.start(created[service.name])
    for service in services:
        await _wait_until_ready(engine, service, created[service.name], ready_s)
        if service.ends:
            await engine.remove(created[service.name])


async def _wait_until_ready(engine: DockerEngine, service: TaskService, container: str, ready_s: float) -> None:
    """Wait until a service that ends has done so, and another one runs and is healthy."""
    try:
        async with asyncio.timeout(ready_s):
            while True:
                if _is_ready(service, (await engine.inspect(container))["State"]):
                    return
                await asyncio.sleep(HEALTH_INTERVAL_S)
    except TimeoutError as error:
        awaited = "did not end" if service.ends else "was not healthy"
        raise SandboxStartError(f"service {service.name} {awaited} within {ready_s:g} s") from error
    except DockerEngineError as error:
        if error.status == 404:
            raise TaskFault(f"service {service.name} ended before the agent started") from error
        raise


def _is_ready(service: TaskService, state: Json) -> bool:
    """Raises TaskFault for a service that has ended and should not, or not with this exit code."""
    if not state["Running"]:
        if service.ends and not state["ExitCode"]:
            return True
        raise TaskFault(f"service {service.name} exited with {state['ExitCode']} before the agent started")
    return not service.ends and (state.get("Health") or _NO_CHECK)["Status"] in _READY
