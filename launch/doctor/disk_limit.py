"""Checks that the Docker engine's means, or ours, hold the disk limit of a sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from launch.doctor.finding import CheckName, Finding, warning
from sandbox.docker.address import DockerAddress
from sandbox.docker.retry import DockerEngineError, Json
from sandbox.host_record import SandboxHost
from sandbox.pool.disk_bound import DISK_BOUND_DESCRIPTIONS, DiskBound, probe_engine_disk_bound


def read_disk_bound(host: SandboxHost, info: Json) -> DiskBound | None:
    """Return what holds the limit; None where the engine does not let it be tried.

    ``info``: the engine's answer to ``GET /info``.
    Where root sees the layers of overlay2, it is at least the watch; elsewhere containers are created to try it.
    """
    local = DockerAddress.parse(host.docker_url).socket and os.geteuid() == 0
    if local and info.get("Driver") == "overlay2" and Path(str(info.get("DockerRootDir"))).is_dir():
        return DiskBound.WATCH
    try:
        return asyncio.run(probe_engine_disk_bound(host.docker_url, host.base_image, host.toolchain))
    except DockerEngineError:
        return None


def check_disk_limit(url: str, bound: DiskBound | None) -> list[Finding]:
    """Return a warning where nothing is known to hold the limit."""
    if bound is None:
        why = f"the engine at {url} made no container on which the disk limit of sandboxes could be tried"
        return [warning(CheckName.DISK, why, "see why in the engine's log, and then what `longshore host status` says")]
    if bound is not DiskBound.FILE_SIZE:
        return []
    effect, fix = DISK_BOUND_DESCRIPTIONS[bound].split(": ")
    return [warning(CheckName.DISK, f"the disk limit of sandboxes of the engine at {url} is {effect}", fix)]
