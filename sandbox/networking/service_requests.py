"""Builds the request by which the engine creates a task's service, and the command that the service starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.default_limits import SERVICE_PIDS
from sandbox.docker.container_spec import (
    OOM_SCORE_ADJ,
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
from sandbox.docker.labels import NETWORK_LABEL, SERVICE_LABEL
from sandbox.docker.retry import BUSY_STATUSES, Json, call_with_retries
from sandbox.errors import TaskFault
from sandbox.tasks.task_containers import SharedFolder, TaskService

SERVICE_LIMITS = ContainerLimits(pids=SERVICE_PIDS)
"""Limits of each service, unless the task sets others."""
HEALTH_INTERVAL_S = 0.25
"""Seconds between two looks at a service."""
_BUSYBOX = "/.sbx/busybox"
_ENDS_IT = "KILL"
"""The capability by which a service ends at its deadline, whoever it runs as then: the task cannot drop it."""
_PAUSE = f"{_BUSYBOX} sleep 1"
_STARTER = ("/.sbx/bash", "-p", "-c")
"""Runs a script whose arguments are a command, by which the image's programs are found: busybox would start its own of
the same names."""


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


def volume_mounts(network: str, folders: Sequence[SharedFolder]) -> tuple[VolumeMount, ...]:
    """Return the volumes of a container whose session has this private network."""
    return tuple(VolumeMount(f"{network}-{each.volume}", each.target, each.read_only) for each in folders)


def service_request(
    service: TaskService, image: str, config: Mapping[str, Any], network: str, settings: TaskServiceSettings
) -> Json:
    """Build the body of Docker's ``POST /containers/create``; ``config`` is the image's.

    Raises TaskFault where there is nothing to start.
    """
    memory = service.memory_mb << 20
    return {
        "Image": image,
        "Entrypoint": [_BUSYBOX, "timeout", "-s", "KILL", str(round(settings.max_lifetime_s)), *_starter(service)],
        "Cmd": _command(service, image, config),
        "Env": [f"{key}={value}" for key, value in service.env.items()],
        "User": service.user,
        "WorkingDir": service.workdir,
        "Hostname": service.hostname or service.name,
        "Labels": {**settings.labels, NETWORK_LABEL: network, SERVICE_LABEL: service.name},
        "Healthcheck": {
            "Test": _health_test(service, config),
            "Interval": int(HEALTH_INTERVAL_S * 1e9),
            "Retries": 1 << 20,
        },
        "OpenStdin": service.stdin_open,
        "Tty": service.tty,
        "NetworkingConfig": networking_config(network, (service.name, *service.aliases)),
        "HostConfig": {
            "AutoRemove": settings.auto_remove and not service.ends,  # its exit code is asked for
            "Init": True,
            "NetworkMode": network,
            **PRIVATE_DNS,
            "LogConfig": {"Type": "none", "Config": {}},
            "CapDrop": ["ALL"],
            "CapAdd": sorted({*service.capabilities, _ENDS_IT}),
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": service.pids,
            "ReadonlyRootfs": service.read_only,
            "Ulimits": ulimits(SERVICE_LIMITS, service.ulimits),
            "StorageOpt": storage_options(SERVICE_LIMITS) if settings.disk_quota else {},
            "Memory": memory,
            "MemorySwap": memory,
            "OomScoreAdj": OOM_SCORE_ADJ,
            "ShmSize": service.shm_mb << 20,
            "Tmpfs": tmpfs_options(service.tmpfs),
            "NanoCpus": int(service.cpus * 1e9),
            "Mounts": [
                mount_read_only(settings.toolchain, "/.sbx"),
                *(each.as_mount() for each in volume_mounts(network, service.volumes)),
            ],
        },
    }


def _starter(service: TaskService) -> tuple[str, ...]:
    """Return the program that starts a service's command, given as its arguments, and starts it again."""
    policy, _, most = service.restart.partition(":")
    if not policy:
        script = 'exec -- "$@"'
    elif policy == "always":
        script = f'while :; do (exec -- "$@"); {_PAUSE}; done'
    else:
        give_up = f"((n++ < {most})) || exit $code; " if most else ""
        script = f'n=0; until (exec -- "$@"); do code=$?; {give_up}{_PAUSE}; done'
    return (*_STARTER, script, service.name)


def _health_test(service: TaskService, config: Mapping[str, Any]) -> Sequence[str]:
    if service.healthcheck is None:
        return ("NONE",)
    if service.healthcheck:
        return ("CMD-SHELL", service.healthcheck)
    of_image: Mapping[str, Any] = config.get("Healthcheck") or {}
    return of_image.get("Test") or ("NONE",)


def _command(service: TaskService, image: str, config: Mapping[str, Any]) -> Sequence[str]:
    """Return the entrypoint and the command: the service's, or the image's where the service has none.

    As in Docker, an entrypoint of the service's own takes the place of the image's command too.
    """
    entrypoint = (config.get("Entrypoint") or ()) if service.entrypoint is None else service.entrypoint
    command = (*entrypoint, *(service.command or (() if service.entrypoint else config.get("Cmd")) or ()))
    if not command:
        raise TaskFault(f"service {service.name}: neither the task nor {image} names a command")
    return command


async def image_config(engine: DockerEngine, image: str) -> Mapping[str, Any]:
    """Return the configuration of an image.  Raises DockerEngineError."""

    async def call() -> Mapping[str, Any]:
        return (await engine.docker.images.inspect(image))["Config"]

    return await call_with_retries(f"inspect the image {image}", call, BUSY_STATUSES)
