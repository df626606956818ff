"""A task's other containers (a database, a web server), on a private network with the agent's, each under its own name.

Volumes that they share with each other or the agent's container belong to the session too; as in Docker Compose, all
containers that have one are created, which fills it from their images, before any is started.

They start before the agent and are removed after it with their network. If every process that knows them dies, a
service ends by itself after the session's maximum, and a later clean-up removes its network, unless another process
takes both over (:func:`adopt_services`). A task without services has no private network.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from protocol.errors import UserError
from protocol.processes.cancellation import call_with_undo
from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.docker import owner
from sandbox.docker.container_spec import (
    PRIVATE_DNS,
    ContainerLimits,
    VolumeMount,
    mount_read_only,
    networking_config,
    storage_options,
    tmpfs_options,
    ulimits,
)
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.shared_volumes import list_volumes, remove_volume, temporary_volume
from sandbox.docker.labels import NETWORK_LABEL, OWNER_LABEL, SERVICE_LABEL
from sandbox.docker.network import private_networks
from sandbox.docker.network.private_networks import MAX_SERVICES
from sandbox.docker.retry import BUSY_STATUSES, DockerEngineError, Json, call_with_retries
from sandbox.errors import SandboxLost, SandboxStartError, TaskFault
from sandbox.images.store import ImageStore
from sandbox.networking.networks import SandboxNetworks
from sandbox.tasks.task_containers import SharedFolder, TaskService

SERVICE_LIMITS = ContainerLimits(pids=256)
"""Limits of each service, unless the task sets others."""
_INTERVAL_S = 0.25
_IMPOSSIBLE = re.compile("unable to find (user|group)|not a directory|chdir to cwd")
"""Matches the daemon's words for a user or a folder that a container cannot have."""


@dataclass(frozen=True, slots=True)
class TaskServiceSettings:
    """Settings with which services are created, and limits of their lifetime."""

    toolchain: Path
    labels: Mapping[str, str]
    max_lifetime_s: float
    """Seconds after which a service ends in any case."""
    ready_timeout_s: float = 120.0
    """Maximum seconds to wait for a service's health check."""
    auto_remove: bool = True
    """See :attr:`sandbox.docker.container_spec.ContainerSpec.auto_remove`."""
    disk_quota: bool = False
    """See :attr:`sandbox.docker.container_spec.ContainerSpec.disk_quota`."""


class AgentVolumes(NamedTuple):
    """The folders that the agent's container shares with services."""

    image: str = ""
    folders: tuple[SharedFolder, ...] = ()


_NO_VOLUMES = AgentVolumes()


def volume_mounts(network: str, folders: Sequence[SharedFolder]) -> tuple[VolumeMount, ...]:
    """Return the volumes of a container whose session has this private network."""
    return tuple(VolumeMount(f"{network}-{each.volume}", each.target, each.read_only) for each in folders)


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
        created: list[tuple[TaskService, str]] = []
        for service in services:
            image = await stack.enter_async_context(images.reserve(service))
            body = _request(service, image, network, settings, await _command_of(engine, service, image))
            with _naming_faults(service):
                container = await stack.enter_async_context(_container(engine, f"create service {service.name}", body))
            created.append((service, container))
        if agent.folders:
            mounts = [each.as_mount() for each in volume_mounts(network, agent.folders)]
            body = {"Image": agent.image, "Cmd": ["true"], "Labels": labels, "HostConfig": {"Mounts": mounts}}
            async with _container(engine, "fill the shared volumes", body):
                pass
        for service, container in created:
            with _naming_faults(service):
                await engine.start(container)
        for service, container in created:
            await _healthy(engine, service, container, settings.ready_timeout_s)
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
        missing = [service.name for service in services if service.name not in left]
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


def _request(
    service: TaskService, image: str, network: str, settings: TaskServiceSettings, command: Sequence[str]
) -> Json:
    """Build the body of Docker's ``POST /containers/create``."""
    check: Json = {"Test": ["NONE"]}
    if service.healthcheck:
        check = {"Test": ["CMD-SHELL", service.healthcheck], "Interval": int(_INTERVAL_S * 1e9), "Retries": 1 << 20}
    memory = service.memory_mb << 20
    return {
        "Image": image,
        "Entrypoint": ["/.sbx/busybox", "timeout", "-s", "KILL", str(round(settings.max_lifetime_s))],
        "Cmd": list(command),
        "Env": [f"{key}={value}" for key, value in service.env.items()],
        "User": service.user,
        "WorkingDir": service.workdir,
        "Hostname": service.hostname or service.name,
        "Labels": {**settings.labels, NETWORK_LABEL: network, SERVICE_LABEL: service.name},
        "Healthcheck": check,
        "NetworkingConfig": networking_config(network, service.name),
        "HostConfig": {
            "AutoRemove": settings.auto_remove,
            "Init": True,
            "NetworkMode": network,
            **PRIVATE_DNS,
            "LogConfig": {"Type": "none", "Config": {}},
            "CapDrop": ["ALL"],
            "CapAdd": list(BASE_CAPABILITIES),
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": SERVICE_LIMITS.pids,
            "Ulimits": ulimits(SERVICE_LIMITS, service.ulimits),
            "StorageOpt": storage_options(SERVICE_LIMITS) if settings.disk_quota else {},
            "Memory": memory,
            "MemorySwap": memory,
            "ShmSize": service.shm_mb << 20,
            "Tmpfs": tmpfs_options(service.tmpfs),
            "NanoCpus": int(service.cpus * 1e9),
            "Mounts": [
                mount_read_only(settings.toolchain, "/.sbx"),
                *(each.as_mount() for each in volume_mounts(network, service.volumes)),
            ],
        },
    }


async def _command_of(engine: DockerEngine, service: TaskService, image: str) -> Sequence[str]:
    """Return the entrypoint and the command: the service's, or the image's where the service has none.

    As in Docker, an entrypoint of the service's own takes the place of the image's command too.
    """

    async def call() -> Mapping[str, Any]:
        return (await engine.docker.images.inspect(image))["Config"]

    config = await call_with_retries(f"inspect the image {image}", call, BUSY_STATUSES)
    entrypoint = (config.get("Entrypoint") or ()) if service.entrypoint is None else service.entrypoint
    command = (*entrypoint, *(service.command or (() if service.entrypoint else config.get("Cmd")) or ()))
    if not command:
        raise TaskFault(f"service {service.name}: neither the task nor {image} names a command")
    return command


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


async def _healthy(engine: DockerEngine, service: TaskService, container: str, ready_s: float) -> None:
    try:
        async with asyncio.timeout(ready_s):
            while True:
                state = (await engine.inspect(container))["State"]
                if not state["Running"]:
                    raise TaskFault(f"service {service.name} exited with {state['ExitCode']} before the agent started")
                if not service.healthcheck or state["Health"]["Status"] == "healthy":
                    return
                await asyncio.sleep(_INTERVAL_S)
    except TimeoutError as error:
        raise SandboxStartError(f"service {service.name} was not healthy within {ready_s:g} s") from error
    except DockerEngineError as error:
        if error.status == 404:
            raise TaskFault(f"service {service.name} ended before the agent started") from error
        raise
