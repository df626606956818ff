"""Ends sessions that write more than their disk limit, where the host cannot make the writes fail, and stops services.

How the limit is enforced is found by :mod:`sandbox.pool.disk_bound`. Where nothing else does, the watch measures the
container's upper layer, as root on the daemon's host. In any case it measures the files that the daemon mounts into a
container (``/etc/hostname`` and the like) and the volumes that it can write to, which are in no layer, and what a
task's services write unless a quota limits them. A service beyond its own limit is stopped, and its session, which goes
on, says so in its grade: the agent is not blamed for it. Deleted files that are still open count too
(:mod:`sandbox.pool.deleted_files`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from protocol.files.filesystem import free_bytes
from sandbox.docker.cgroups import cgroup_procs
from sandbox.docker.container_spec import ContainerLimits
from sandbox.docker.files.loop_disk import upper_layer_of
from sandbox.docker.labels import SERVICE_LABEL
from sandbox.docker.retry import DockerEngineError, Json
from sandbox.errors import DestructionCause, SandboxDestroyed
from sandbox.networking.service_requests import SERVICE_LIMITS
from sandbox.networking.services import inspect_services
from sandbox.pool.deleted_files import deleted_file_bytes
from sandbox.pool.disk_bound import DiskBound
from sandbox.session.sandbox_session import SandboxSession

MEASURE_INTERVAL_S = 1.0
MAX_MEASURE_INTERVAL_S = 15.0
"""Maximum seconds between two measurements of a layer: others may free the space that it fills."""
MIN_BYTES_PER_FILE = 4096
"""Minimum size that a file counts as: an empty file takes no block, but takes as long to copy and remove."""
_DU_S = 60.0
_LAYERS_PER_DU = 64
"""Maximum number of layers that one ``du`` process measures."""
_MOUNTED = ("HostnamePath", "HostsPath", "ResolvConfPath")
"""Docker's API names of the daemon's files that are mounted into a container, where root may write to them."""


@dataclass(slots=True)
class MeasuredLayer:
    """A container's writable paths and their last measurement."""

    container: str
    service: str
    """Name of the service whose container it is; empty for the session's own."""
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
    """Return whether a layer could exceed its limit by now.

    It cannot have grown by more than the free space has shrunk, unless others have freed some; hence also the maximum
    interval.
    """
    return (
        seen.used_bytes + max(0, seen.free_disk_bytes - free) > seen.limit_bytes
        or now_s - seen.measured_at_s > MAX_MEASURE_INTERVAL_S
    )


class DiskWatch:
    """Ends sessions beyond their disk limit (``spec.limits.disk_bytes``), and stops services beyond theirs."""

    def __init__(self, sessions: Callable[[], Iterable[SandboxSession]], bound: DiskBound) -> None:
        """``bound`` enforces the limit; what it covers is not measured."""
        self._sessions, self._bound = sessions, bound
        self._seen: WeakKeyDictionary[SandboxSession, tuple[MeasuredLayer, ...]] = WeakKeyDictionary()
        """The layers of a session's own container and of its services."""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            for session in tuple(self._sessions()):
                with contextlib.suppress(
                    DockerEngineError, OSError, TimeoutError
                ):  # it has ended, or is inspected again soon
                    await self._find(session)
            due = [(session, seen) for session, boxes in self._seen.items() for seen in boxes if _due(session, seen)]
            due.sort(key=lambda each: each[1].measured_at_s)
            for first in range(0, len(due), _LAYERS_PER_DU):
                with contextlib.suppress(OSError):  # the first one no longer exists
                    await self._measure(due[first : first + _LAYERS_PER_DU])
            await asyncio.sleep(MEASURE_INTERVAL_S)

    async def _find(self, session: SandboxSession) -> None:
        if session in self._seen or session.spec is None or not session.alive:
            return
        description = await session.engine.inspect(session.container)
        others = await inspect_services(session.engine, description)
        self._seen[session] = (
            _unmeasured_layer(description, session.spec.limits, layer=self._bound is DiskBound.WATCH),
            *(_unmeasured_layer(other, SERVICE_LIMITS, layer=not self._bound.enforced_by_daemon) for other in others),
        )

    async def _measure(self, due: Sequence[tuple[SandboxSession, MeasuredLayer]]) -> None:
        """Measure many layers with one process; with hundreds of sandboxes, one for each would keep a core busy."""
        watched = [seen for _, seen in due]
        free = free_bytes(watched[0].paths[0])
        used = await asyncio.to_thread(measure_disk_use, [each for seen in watched for each in seen.paths])
        deleted = await asyncio.to_thread(_deleted_bytes, watched)
        for (session, seen), more in zip(due, deleted, strict=True):
            seen.measured_at_s = time.monotonic()
            if not used.keys() >= set(seen.paths):
                break  # ended, or too slow, so that those after it have no answer either: they come first next time
            seen.used_bytes, seen.free_disk_bytes = sum(used[each] for each in seen.paths) + more, free
            if seen.used_bytes > seen.limit_bytes:
                await _end(session, seen)


async def _end(session: SandboxSession, seen: MeasuredLayer) -> None:
    """Stop the service, or end the session, that has exceeded its limit."""
    used_mib, limit_mib = seen.used_bytes >> 20, seen.limit_bytes >> 20
    wrote = (
        f"wrote {used_mib} MiB, more than its disk limit of {limit_mib} MiB "
        f"(each file counts for {MIN_BYTES_PER_FILE >> 10} KiB or more)"
    )
    if not seen.service:
        await session.destroy(SandboxDestroyed(f"the agent {wrote}", DestructionCause.DISK))
        return
    seen.paths = ()  # it is measured no more
    session.stopped_services.append(f"service {seen.service} was stopped: it {wrote}")
    with contextlib.suppress(DockerEngineError):  # its deadline ends it
        await session.engine.remove(seen.container)


def _due(session: SandboxSession, seen: MeasuredLayer) -> bool:
    if not seen.paths or not session.alive:
        return False
    try:
        return is_measurement_due(seen, free_bytes(seen.paths[0]), time.monotonic())
    except OSError:  # it no longer exists
        return False


def _unmeasured_layer(description: Json, limits: ContainerLimits, *, layer: bool) -> MeasuredLayer:
    paths = tuple(
        filter(os.path.exists, writable_paths(description, layer=layer))
    )  # only those that this process can see
    free = free_bytes(paths[0]) if paths else 0
    return MeasuredLayer(
        description["Id"],
        description["Config"]["Labels"].get(SERVICE_LABEL, ""),
        paths,
        cgroup_procs(description["State"]["Pid"], description["Id"]),
        limits.disk_bytes,
        0,
        free,
        -math.inf,
    )


def writable_paths(description: Json, *, layer: bool) -> tuple[Path, ...]:
    """Return the paths on the daemon's host to which a container writes, from the daemon's description of it."""
    upper = upper_layer_of(description) if layer else None
    mounted = (description.get(each) for each in _MOUNTED)
    mounts: list[Json] = description.get("Mounts") or []
    volumes = (each.get("Source") for each in mounts if each.get("Type") == "volume" and each.get("RW", True))
    return (*((upper,) if upper else ()), *(Path(each) for each in (*mounted, *volumes) if each))


def _deleted_bytes(watched: Sequence[MeasuredLayer]) -> list[int]:
    """Return the bytes of deleted files of each layer. Blocks, for use in a thread."""
    return [
        deleted_file_bytes(seen.processes, seen.paths, seen.limit_bytes) if seen.processes else 0 for seen in watched
    ]


def measure_disk_use(paths: Sequence[Path]) -> dict[Path, int]:
    """Return the size of each path: its bytes on disk, or :data:`MIN_BYTES_PER_FILE` for each of its files if that is
    more.

    Paths that were not measured in time are left out. Blocks, for use in a thread.
    """
    sizes, files = _du("-B1", paths), _du("--inodes", paths)
    return {path: max(size, MIN_BYTES_PER_FILE * files.get(path, 0)) for path, size in sizes.items()}


def _du(unit: str, paths: Sequence[Path]) -> dict[Path, int]:
    """Run ``du``, which follows no link and handles any depth of folders.

    The standard library starts it by vfork. uvloop, which runs Ray's actors, would run the fork handlers of gRPC and
    jemalloc, which has hung forever.
    """
    command, none = ("du", "-s", "-x", unit, "--", *map(str, paths)), subprocess.DEVNULL
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=none, timeout=_DU_S, check=False).stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    numbers = (line.split(b"\t", 1) for line in output.splitlines())
    return {Path(os.fsdecode(path)): int(number) for number, path in numbers}
