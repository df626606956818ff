"""Finds the best means that a host has to limit an agent's disk use, by one trial.

In order of preference: a quota of the storage driver (overlay2 on XFS with project quotas, or btrfs with quotas), where
a write fails inside the sandbox; if the pool is configured for it, a file system of its own for each sandbox
(:mod:`sandbox.docker.files.loop_disk`), with the same effect; a watch on the container's upper layer
(:mod:`sandbox.pool.disk_watch`), which ends the session; and otherwise only the limit on a single file, which every
container has.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from protocol.processes.cancellation import call_with_undo, temporary_resource
from sandbox.docker import owner
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.loop_disk import daemon_sees_loop_disk, find_upper_layer, mount_loop_disk
from sandbox.docker.labels import OWNER_LABEL
from sandbox.docker.retry import DockerEngineError

_PROBE_BYTES = 1 << 30
_WAIT = ("/.sbx/busybox", "sleep", "60")
_CONTAINERD_STORE = ["driver-type", "io.containerd.snapshotter.v1"]
"""Entry of ``DriverStatus`` in Docker's ``GET /info``."""


class DiskBound(StrEnum):
    """Means that enforces the disk limit."""

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
    def enforced_by_daemon(self) -> bool:
        """True for a quota of the daemon's storage driver."""
        return self in (DiskBound.XFS_QUOTA, DiskBound.BTRFS_QUOTA)


DISK_BOUND_DESCRIPTIONS: Mapping[DiskBound, str] = {
    DiskBound.XFS_QUOTA: "a write beyond it fails",
    DiskBound.BTRFS_QUOTA: "a write beyond it fails; the image counts too",
    DiskBound.LOOP: "a write beyond it fails",
    DiskBound.WATCH: "a sandbox beyond it is ended within seconds; the number of files counts too",
    DiskBound.FILE_SIZE: "NOT ENFORCED, only the size of a single file is limited: run as root on the engine's host, "
    "or keep the engine's data on XFS mounted with pquota",
}
"""Effect of a write beyond the limit, for ``longshore host up``."""


async def probe_disk_bound(engine: DockerEngine, spec: ContainerSpec, *, loop: bool = False) -> DiskBound:
    """Try the means in order, on a container like ``spec``. Raises DockerEngineError.

    It never runs, unless the engine has containerd's image store, which accepts a quota and does not hold it, and makes
    a container's layer only when it starts.
    """
    info = await engine.info()
    if _CONTAINERD_STORE in (info.get("DriverStatus") or ()):
        return await _with_containerd_store(engine, replace(spec, command=_WAIT))
    limited = replace(spec, limits=replace(spec.limits, disk_bytes=_PROBE_BYTES), disk_quota=True)
    if await _can_create(engine, limited):
        return DiskBound.BTRFS_QUOTA if info.get("Driver") == "btrfs" else DiskBound.XFS_QUOTA
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


async def _with_containerd_store(engine: DockerEngine, spec: ContainerSpec) -> DiskBound:
    async with temporary_resource(lambda: engine.create(spec), engine.remove) as container:
        await engine.start(container)
        return DiskBound.WATCH if await _sees_layer(engine, container) else DiskBound.FILE_SIZE


async def _sees_layer(engine: DockerEngine, container: str) -> bool:
    """Return whether this process can measure what the container writes."""
    upper = await find_upper_layer(engine, container)
    return upper is not None and os.geteuid() == 0 and await asyncio.to_thread(upper.is_dir)


async def _without_quota(engine: DockerEngine, container: str, *, loop: bool) -> DiskBound:
    if not await _sees_layer(engine, container):
        return DiskBound.FILE_SIZE
    if loop:
        with contextlib.suppress(DockerEngineError):
            await mount_loop_disk(engine, container, _PROBE_BYTES)
            if await daemon_sees_loop_disk(engine, container):
                return DiskBound.LOOP
    return DiskBound.WATCH


async def probe_engine_disk_bound(url: str, image: str, toolchain: Path) -> DiskBound:
    """Try the means on the engine at this address. Raises DockerEngineError."""
    async with DockerEngine(url) as engine:
        return await probe_disk_bound(
            engine, ContainerSpec(image, toolchain, {OWNER_LABEL: owner.owner_of_this_process()}, ("/.sbx/init",))
        )
