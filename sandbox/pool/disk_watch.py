"""Limits how much disk an agent may fill, by the best means that the host has.

In order of preference: a quota of the storage driver (overlay2 on XFS with project quotas, or btrfs with quotas), where
a write fails inside; if the pool is configured so, a file system of its own for each sandbox
(:mod:`sandbox.docker.loop_disk`), with the same effect; a watch on the container's upper layer, as root on the daemon's
host, which ends the session; and otherwise only the limit on a single file, which every container has. Which one works
is found by one trial.

In any case the files that the daemon mounts into a container (``/etc/hostname`` and the like) and the volumes that its
image declares are in no layer, and are watched; so is what a task's services write, where no quota limits them. Deleted
files that are still open are counted too (:mod:`sandbox.pool.deleted_files`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from weakref import WeakKeyDictionary

from protocol.files.filesystem import free_bytes
from protocol.processes.cancellation import call_with_undo, temporary_resource
from sandbox.docker import owner
from sandbox.docker.cgroups import cgroup_procs
from sandbox.docker.container_spec import ContainerLimits, ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import OWNER_LABEL
from sandbox.docker.loop_disk import daemon_sees_loop_disk, find_upper_layer, mount_loop_disk, upper_layer_of
from sandbox.docker.retry import DockerEngineError, Json
from sandbox.errors import DestructionCause, SandboxDestroyed
from sandbox.networking.services import SERVICE_LIMITS, inspect_services
from sandbox.pool.deleted_files import deleted_file_bytes
from sandbox.session.sandbox_session import SandboxSession

MEASURE_INTERVAL_S = 1.0
MAX_MEASURE_INTERVAL_S = 15.0
"""Longest time between two measurements of a layer, since others may free what it fills."""
MIN_BYTES_PER_FILE = 4096
"""Least size that a file counts for: an empty file takes no block, but as long to copy and remove."""
_DU_S = 60.0
_TOGETHER = 64
"""Most layers that one ``du`` process measures."""
_PROBE_BYTES = 1 << 30
_MOUNTED = ("HostnamePath", "HostsPath", "ResolvConfPath")
"""Names in Docker's API of the daemon's files that it mounts into a container, where root may write to them."""


class DiskBound(StrEnum):
    """What enforces the disk limit."""

    XFS_QUOTA = "xfs quota"
    """Writes beyond it fail."""
    BTRFS_QUOTA = "btrfs quota"
    """Writes beyond it fail; the image counts too."""
    LOOP = "ext4 loop"
    """Writes beyond it fail, and so do files beyond one for each 8 KiB."""
    WATCH = "watch"
    """A session beyond it is ended within seconds; the number of files counts too."""
    FILE_SIZE = "file size"
    """Only the size of a single file is limited."""

    @property
    def by_daemon(self) -> bool:
        """Whether the daemon's storage driver enforces it."""
        return self in (DiskBound.XFS_QUOTA, DiskBound.BTRFS_QUOTA)


DISK_BOUND_DESCRIPTIONS: Mapping[DiskBound, str] = {
    DiskBound.XFS_QUOTA: "a write beyond it fails",
    DiskBound.BTRFS_QUOTA: "a write beyond it fails; the image counts too",
    DiskBound.LOOP: "a write beyond it fails",
    DiskBound.WATCH: "a sandbox that goes beyond it is ended within seconds; files count too",
    DiskBound.FILE_SIZE: "NOT HELD, only a single file is bounded: run as root on the engine's host, or keep the "
    "engine's data on XFS mounted with pquota",
}
"""What happens to a sandbox beyond its limit."""


async def probe_disk_bound(engine: DockerEngine, spec: ContainerSpec, *, loop: bool = False) -> DiskBound:
    """Try the means in order, on a container like ``spec`` that never runs. Raises DockerEngineError."""
    limited = replace(spec, limits=replace(spec.limits, disk_bytes=_PROBE_BYTES), disk_quota=True)
    if await _can_create(engine, limited):
        driver = (await engine.info()).get("Driver")
        return DiskBound.BTRFS_QUOTA if driver == "btrfs" else DiskBound.XFS_QUOTA
    async with temporary_resource(lambda: engine.create(spec), engine.remove) as container:
        return await _without_quota(engine, container, loop=loop)


async def _can_create(engine: DockerEngine, spec: ContainerSpec) -> bool:
    """Create a container and remove it again."""
    try:
        container = await call_with_undo(lambda: engine.create(spec), engine.remove)
    except DockerEngineError:
        return False
    await asyncio.shield(engine.remove(container))
    return True


async def _without_quota(engine: DockerEngine, container: str, *, loop: bool) -> DiskBound:
    upper = await find_upper_layer(engine, container)
    if upper is None or os.geteuid() != 0 or not await asyncio.to_thread(upper.is_dir):
        return DiskBound.FILE_SIZE
    if loop:
        with contextlib.suppress(DockerEngineError):
            await mount_loop_disk(engine, container, _PROBE_BYTES)
            if await daemon_sees_loop_disk(engine, container):
                return DiskBound.LOOP
    return DiskBound.WATCH


async def probe_engine_disk_bound(url: str, image: str, kit: Path) -> DiskBound:
    """Try the means on the engine at this address. Raises DockerEngineError."""
    async with DockerEngine(url) as engine:
        return await probe_disk_bound(
            engine, ContainerSpec(image, kit, {OWNER_LABEL: owner.owner_of_this_process()}, ("/.sbx/init",))
        )


@dataclass(slots=True)
class MeasuredLayer:
    """A container's writable places and their last measurement."""

    paths: tuple[Path, ...]
    """Paths on the daemon's host; none where this process cannot see them."""
    processes: Path | None
    """The container's ``cgroup.procs`` file; None where this process cannot see it."""
    limit_bytes: int
    used_bytes: int
    free_disk_bytes: int
    """Free space of the disk that holds the layer."""
    measured_at_s: float


def is_measurement_due(seen: MeasuredLayer, free: int, now_s: float) -> bool:
    """Whether a layer could exceed its limit by now.

    It cannot have grown by more than the free space has shrunk, unless others have freed some; hence also the longest
    interval.
    """
    return (
        seen.used_bytes + max(0, seen.free_disk_bytes - free) > seen.limit_bytes
        or now_s - seen.measured_at_s > MAX_MEASURE_INTERVAL_S
    )


class DiskWatch:
    """Ends the sessions that exceed their disk limit (``spec.limits.disk_bytes``), or whose services exceed theirs."""

    def __init__(self, sessions: Callable[[], Iterable[SandboxSession]], bound: DiskBound) -> None:
        """``bound`` is what enforces the limit; what it covers is not watched."""
        self._sessions, self._bound = sessions, bound
        self._seen: WeakKeyDictionary[SandboxSession, tuple[MeasuredLayer, ...]] = WeakKeyDictionary()
        """The layers of a session's own container and of its services."""

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            for session in tuple(self._sessions()):
                with contextlib.suppress(
                    DockerEngineError, OSError, TimeoutError
                ):  # it is gone, or is looked at again soon
                    await self._find(session)
            due = [(session, seen) for session, boxes in self._seen.items() for seen in boxes if _due(session, seen)]
            due.sort(key=lambda each: each[1].measured_at_s)
            for first in range(0, len(due), _TOGETHER):
                with contextlib.suppress(OSError):  # the first of them is gone
                    await self._measure(due[first : first + _TOGETHER])
            await asyncio.sleep(MEASURE_INTERVAL_S)

    async def _find(self, session: SandboxSession) -> None:
        if session in self._seen or session.spec is None or not session.alive:
            return
        shown = await session.engine.inspect(session.container)
        others = await inspect_services(session.engine, shown)
        self._seen[session] = (
            _first_look(shown, session.spec.limits, layer=self._bound is DiskBound.WATCH),
            *(_first_look(other, SERVICE_LIMITS, layer=not self._bound.by_daemon) for other in others),
        )

    async def _measure(self, due: Sequence[tuple[SandboxSession, MeasuredLayer]]) -> None:
        """Measure many layers with one process; with hundreds of sandboxes, one for each would keep a core busy."""
        watched = [seen for _, seen in due]
        free = free_bytes(watched[0].paths[0])
        used = await asyncio.to_thread(_used, [each for seen in watched for each in seen.paths])
        nameless = await asyncio.to_thread(_deleted_bytes, watched)
        for (session, seen), more in zip(due, nameless, strict=True):
            seen.measured_at_s = time.monotonic()
            if not used.keys() >= set(seen.paths):
                break  # gone, or so slow that those behind it have no answer either: they come first the next time
            seen.used_bytes, seen.free_disk_bytes = sum(used[each] for each in seen.paths) + more, free
            if seen.used_bytes > seen.limit_bytes:
                used_mib, limit_mib = seen.used_bytes >> 20, seen.limit_bytes >> 20
                what = f"the agent wrote {used_mib} MiB, more than its disk limit of {limit_mib} MiB"
                note = f" (each file counts for {MIN_BYTES_PER_FILE >> 10} KiB or more)"
                await session.destroy(SandboxDestroyed(what + note, DestructionCause.DISK))


def _due(session: SandboxSession, seen: MeasuredLayer) -> bool:
    if not seen.paths or not session.alive:
        return False
    try:
        return is_measurement_due(seen, free_bytes(seen.paths[0]), time.monotonic())
    except OSError:  # it is gone
        return False


def _first_look(shown: Json, limits: ContainerLimits, *, layer: bool) -> MeasuredLayer:
    there = tuple(filter(os.path.exists, writable_paths(shown, layer=layer)))  # where this process may look
    free = free_bytes(there[0]) if there else 0
    return MeasuredLayer(there, cgroup_procs(shown["State"]["Pid"], shown["Id"]), limits.disk_bytes, 0, free, -math.inf)


def writable_paths(shown: Json, *, layer: bool) -> tuple[Path, ...]:
    """Return where a container writes on its daemon's host, from the daemon's description of it."""
    upper = upper_layer_of(shown) if layer else None
    mounted = (shown.get(each) for each in _MOUNTED)
    volumes = (each.get("Source") for each in shown.get("Mounts") or () if each.get("Type") == "volume")
    return (*((upper,) if upper else ()), *(Path(each) for each in (*mounted, *volumes) if each))


def _deleted_bytes(watched: Sequence[MeasuredLayer]) -> list[int]:
    """Bytes of deleted files for each layer. Blocks, for use in a thread."""
    return [
        deleted_file_bytes(seen.processes, seen.paths, seen.limit_bytes) if seen.processes else 0 for seen in watched
    ]


def _used(places: Sequence[Path]) -> dict[Path, int]:
    """Return the size of each place: its bytes on disk, or :data:`MIN_BYTES_PER_FILE` for each of its files if that is
    more.

    What was not measured in time is left out. Blocks, for use in a thread.
    """
    sizes, files = _du("-B1", places), _du("--inodes", places)
    return {place: max(size, MIN_BYTES_PER_FILE * files.get(place, 0)) for place, size in sizes.items()}


def _du(what: str, places: Sequence[Path]) -> dict[Path, int]:
    """Run ``du``, which follows no link and handles any depth of folders.

    The standard library starts it by vfork. uvloop, which runs Ray's actors, would run the fork handlers of gRPC and
    jemalloc, which was seen to hang forever.
    """
    command, none = ("du", "-s", "-x", what, "--", *map(str, places)), subprocess.DEVNULL
    try:
        told = subprocess.run(command, stdout=subprocess.PIPE, stderr=none, timeout=_DU_S, check=False).stdout
    except subprocess.TimeoutExpired as error:
        told = error.stdout or b""
    numbers = (line.split(b"\t", 1) for line in told.splitlines())
    return {Path(os.fsdecode(path)): int(number) for number, path in numbers}
