"""A file system of its own for each sandbox's writes: an ext4 image in a sparse file, mounted over the container's
layer between the container's creation and its start.

A write beyond its size fails inside the container, and so does creating too many files. It needs root on the daemon's
host and works in the daemon's folder, so a pool does it only when configured. The file is unlinked once it is mounted:
it disappears with the mount, when the daemon removes the container.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import cast

from protocol.processes.cancellation import call_with_undo
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError, Json, call_with_retries

_STEP_S = 60.0
_SEEN = ".sbx-disk"
_UPPER = "upperdir="
"""Option of an overlay's mount."""
_BYTES_PER_FILE = 8192
_MAKE = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-i", str(_BYTES_PER_FILE), "-E", "nodiscard")
_MOUNT = ("mount", "-t", "ext4", "-o", "loop,noatime,noinit_itable")


async def find_upper_layer(engine: DockerEngine, container: str) -> Path | None:
    """Return the folder on the daemon's host with a container's writes; None where the storage driver has none.

    Raises DockerEngineError.
    """
    return upper_layer_of(await engine.inspect(container))


def upper_layer_of(description: Json) -> Path | None:
    """Return that folder from the daemon's description of the container.

    A daemon with containerd's image store does not name it; the mounts of a running container on this machine do.
    """
    driver: Json = description.get("GraphDriver") or {}
    layers = cast("dict[str, str]", driver.get("Data") or {})
    if "UpperDir" in layers:
        return Path(layers["UpperDir"])
    pid = description["State"]["Pid"]
    try:
        return _mounted_upper_layer(Path(f"/proc/{pid}/mountinfo").read_text()) if pid else None
    except OSError:  # it has ended, or runs on another machine
        return None


def _mounted_upper_layer(mounts: str) -> Path | None:
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        if place.split()[4] == "/" and source.startswith("overlay "):
            options = source.split()[2].split(",")
            return next((Path(each[len(_UPPER) :]) for each in options if each.startswith(_UPPER)), None)
    return None


async def mount_loop_disk(engine: DockerEngine, container: str, size: int) -> None:
    """Give a file system of ``size`` bytes to a container that has been created but not started.

    Raises DockerEngineError where that is impossible.
    """
    upper = await find_upper_layer(engine, container)
    if upper is None:
        raise DockerEngineError("the engine's storage driver has no layer on which a disk could be mounted")
    layer = upper.parent

    async def mount() -> None:
        await asyncio.to_thread(_mount_over, layer, size)

    async def keep(_: None) -> None:
        """Keep the mount: removing the container removes it, which must not happen while it is being mounted."""

    try:
        await call_with_undo(mount, keep)
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise DockerEngineError(f"could not mount a disk for container {container[:12]}: {message or error}") from error


async def daemon_sees_loop_disk(engine: DockerEngine, container: str) -> bool:
    """Return whether files that the daemon writes into the container land on its own disk.

    A daemon in a mount namespace of its own does not see the mount. Raises DockerEngineError.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(_SEEN))

    async def call() -> None:
        handle = engine.docker.containers.container(container)  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        await handle.put_archive("/", packed.getvalue())  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker

    await call_with_retries(f"write into container {container[:12]}", call, frozenset({500, 503}))
    upper = await find_upper_layer(engine, container)
    return upper is not None and await asyncio.to_thread((upper / _SEEN).exists)


def _mount_over(layer: Path, size: int) -> None:
    """Mount a file system of ``size`` bytes over ``layer``, with the files already in it. Blocks."""
    with tempfile.TemporaryDirectory(prefix="longshore-disk-", dir=layer.parents[1]) as folder:
        disk, filled = Path(folder) / "disk", Path(folder) / "filled"
        filled.mkdir()
        with disk.open("wb") as file:
            file.truncate(size)
        _run(*_MAKE, str(disk))
        _run(*_MOUNT, str(disk), str(filled))
        try:
            _run("cp", "-a", f"{layer}/.", str(filled))
        finally:
            _run("umount", str(filled))
        _run(*_MOUNT, str(disk), str(layer))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_STEP_S)
