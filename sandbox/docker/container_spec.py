"""Limits and specification of a sandbox's container, as the body of Docker's create call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import NamedTuple

from protocol.errors import UserError
from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.default_limits import CPUS, MEMORY_MB, PIDS, SHM_MB
from sandbox.docker.retry import Json
from sandbox.process_limits import ProcessLimit

HOSTNAME = "sandbox"
"""Host name of a container that has no other."""
OOM_SCORE_ADJ = 400
"""The kernel counts each process of a container as if it held so many thousandths of the machine's memory more, when
it chooses which to end because that memory is used up. None of them can be below it. PID 1's children begin at 500
(``sandbox/init/slot.c``)."""
AGENT_PROGRAMS = "/.hns"
"""Folder in a sandbox with the programs of an agent that is not the image's."""
PRIVATE_DNS: Json = {"Dns": ["127.0.0.254"], "DnsOptions": ["timeout:1", "attempts:1"]}
"""DNS options for a private network, where Docker's own resolver knows the other containers and must not query public
servers: no server answers at this address, so that the lookup of any other name fails within seconds."""
_MAX_PROCESSES = 4096
"""Process limit per user.  The cgroup's lower limit on pids is the effective one; this one is set because Podman's
default may exceed what a nested machine allows."""
_MAX_PENDING_SIGNALS = 4096
"""Limit on pending signals and timers.  The kernel counts those of root in all containers and on the host together, and
the host's limit is higher than this."""


def networking_config(network: str, names: Sequence[str]) -> Json:
    """Build Docker's ``NetworkingConfig`` for a container on one network under ``names``."""
    return {"EndpointsConfig": {network: {"Aliases": list(names)}}}


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Resource limits of one container.  Raises UserError for a limit that is not positive and finite."""

    memory_bytes: int = MEMORY_MB << 20
    pids: int = PIDS
    cpus: float = CPUS
    shm_bytes: int = SHM_MB << 20
    """Size of ``/dev/shm``."""
    file_bytes: int = 2 << 30
    """Largest size of one file."""
    disk_bytes: int = 2 << 30
    """Maximum bytes that the container may write, where the host can enforce it (:mod:`sandbox.pool.disk_watch`)."""
    open_files: int = 16384
    """Maximum open files of one process. Podman's own default is a million, which a nested machine may not allow."""

    def __post_init__(self) -> None:
        if not all(0 < limit < math.inf for limit in astuple(self)):
            raise UserError(f"a sandbox limit must be positive and finite (Docker takes 0 for no limit): {self}")


def ulimits(limits: ContainerLimits, own: Sequence[ProcessLimit] = ()) -> list[Json]:
    """Build Docker's ``Ulimits``, which apply to each process; those of a task's ``own`` come first."""
    hard_limits = {
        "fsize": limits.file_bytes,
        "core": 0,
        "nofile": limits.open_files,
        "nproc": _MAX_PROCESSES,
        "sigpending": _MAX_PENDING_SIGNALS,
    }
    chosen = {name: (limit, limit) for name, limit in hard_limits.items()}
    chosen |= {each.name: (each.soft, each.hard) for each in own}
    return [{"Name": name, "Soft": soft, "Hard": hard} for name, (soft, hard) in chosen.items()]


def storage_options(limits: ContainerLimits) -> Json:
    """Build the storage driver's option for the disk limit."""
    return {"size": str(limits.disk_bytes)}


def tmpfs_options(folders: Sequence[str]) -> Json:
    """Build Docker's ``Tmpfs``: the options of each folder, by path."""
    return {path: options for path, _, options in (each.partition(":") for each in folders)}


class ImageConfig(NamedTuple):
    """The part of an image's configuration that its processes get."""

    env: tuple[tuple[str, str], ...] = ()
    """Variables of every process, by name."""
    user: str = ""
    """Name or number, with ``:group`` or without; empty for root."""
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""


class VolumeMount(NamedTuple):
    """A volume in a container."""

    name: str
    """Name of a volume that exists; empty for a new one that is removed with the container."""
    target: str
    read_only: bool = False

    def as_mount(self) -> Json:
        """Build an entry of Docker's ``Mounts``; an empty volume gets what the image has in the folder."""
        return {"Type": "volume", "Source": self.name, "Target": self.target, "ReadOnly": self.read_only}


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Specification of one sandbox container."""

    image: str
    toolchain: Path
    """Folder on the daemon's host, mounted read-only at ``/.sbx``."""
    labels: Mapping[str, str]
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: ContainerLimits = ContainerLimits()
    hostname: str = HOSTNAME
    auto_remove: bool = True
    """The daemon removes the container when it ends. A daemon with live-restore would kill such containers when it
    restarts, so there the session removes its own."""
    disk_quota: bool = False
    """The daemon's storage driver enforces the disk limit."""
    disk_loop: bool = False
    """The container writes to a file system of its own (:mod:`sandbox.docker.files.loop_disk`)."""
    network: str = "none"
    """Docker's network mode: ``none``, a network's name, or ``container:ID`` for the network of that container."""
    aliases: tuple[str, ...] = ()
    """Names under which other containers of a private network reach it."""
    resolves_public_names: bool = False
    """Docker resolves public names too, instead of only those of containers on the same network."""
    capabilities: tuple[str, ...] = BASE_CAPABILITIES
    committed_from: str = ""
    """The task's image if ``image`` was committed from a sandbox; an agent may have changed the files that the daemon
    reads from such an image (:mod:`sandbox.docker.files.user_files`)."""
    tmpfs: tuple[str, ...] = ()
    """Folders in memory: absolute paths, with ``:options`` of mount or without."""
    ulimits: tuple[ProcessLimit, ...] = ()
    """Limits of each process that differ from a sandbox's own."""
    read_only: tuple[str, ...] = ()
    """Folders in which nothing can be changed (:mod:`sandbox.docker.files.read_only_folders`)."""
    volumes: tuple[VolumeMount, ...] = ()
    image_config: ImageConfig | None = None
    """The task image's configuration, if it is known."""
    agent_programs: Path | None = None
    """Folder on the daemon's host, mounted read-only at :data:`AGENT_PROGRAMS`."""

    @property
    def task_image(self) -> str:
        """The task's image, also for a copy of a sandbox."""
        return self.committed_from or self.image

    def create_body(self) -> Json:
        """Build the body of Docker's ``POST /containers/create``."""
        limits = self.limits
        joined = self.network.startswith("container:")
        may_mount = "SYS_ADMIN" in self.capabilities  # AppArmor would refuse it; PID 1 sees to new privileges (guard.c)
        return {
            "Image": self.image,
            "Entrypoint": [],
            "Cmd": list(self.command),
            "Env": [f"{key}={value}" for key, value in self.env.items()],
            "WorkingDir": "/",
            "User": "0:0",
            "Hostname": "" if joined else self.hostname,
            "Labels": dict(self.labels),
            "Healthcheck": {"Test": ["NONE"]},  # the image's would run in the container, also during tests
            "NetworkDisabled": self.network == "none",
            **({"NetworkingConfig": networking_config(self.network, self.aliases)} if self.aliases else {}),
            "OpenStdin": True,
            "StdinOnce": False,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "HostConfig": {
                "AutoRemove": self.auto_remove,
                "Init": False,
                "NetworkMode": self.network,
                **({} if joined or self.network == "none" or self.resolves_public_names else PRIVATE_DNS),
                "LogConfig": {"Type": "none", "Config": {}},
                "CapDrop": ["ALL"],
                "CapAdd": list(self.capabilities),
                "SecurityOpt": ["apparmor=unconfined" if may_mount else "no-new-privileges"],
                "StorageOpt": storage_options(limits) if self.disk_quota else {},
                "PidsLimit": limits.pids,
                "Memory": limits.memory_bytes,
                "MemorySwap": limits.memory_bytes,
                "OomScoreAdj": OOM_SCORE_ADJ,
                "ShmSize": limits.shm_bytes,
                "Tmpfs": tmpfs_options(self.tmpfs),
                "NanoCpus": int(limits.cpus * 1e9),
                "Ulimits": ulimits(limits, self.ulimits),
                "Mounts": [
                    *(mount_read_only(source, target) for target, source in self._mounted.items()),
                    *(volume.as_mount() for volume in self.volumes),
                ],
            },
        }

    @property
    def _mounted(self) -> Mapping[str, Path]:
        programs = {} if self.agent_programs is None else {AGENT_PROGRAMS: self.agent_programs}
        return {"/.sbx": self.toolchain, **programs}


def mount_read_only(source: Path, target: str) -> Json:
    """Build an entry of Docker's ``Mounts`` for a folder on the daemon's host."""
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": True}
