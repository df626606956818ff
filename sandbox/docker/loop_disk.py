"""A file system of its own for what a sandbox writes: an ext4 in a sparse file, mounted where the daemon keeps the
container's layer, between its creation and its start.

A write beyond its size fails inside, and so does one file too many.  That needs root on the daemon's own host and
touches the daemon's folder, so a pool does it only where it is told to.  The file has no name any more once it is
mounted: it goes with its mount, and that goes when the daemon removes the container.
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
_BYTES_PER_FILE = 8192
_MAKE = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-i", str(_BYTES_PER_FILE), "-E", "nodiscard")
_MOUNT = ("mount", "-t", "ext4", "-o", "loop,noatime,noinit_itable")


async def find_upper_layer(engine: DockerEngine, container: str) -> Path | None:
    """The folder on the daemon's host with what a container has written; None where the driver has none.

    Raises EngineError.
    """
    return upper_layer_of(await engine.inspect(container))


def upper_layer_of(shown: Json) -> Path | None:
    """The same, of what the daemon says of the container."""
    layers = cast("dict[str, str]", shown.get("GraphDriver", {}).get("Data") or {})
    return Path(layers["UpperDir"]) if "UpperDir" in layers else None


async def mount_loop_disk(engine: DockerEngine, container: str, size: int) -> None:
    """To a container that has been created and does not run.  Raises EngineError where it cannot be done here."""
    upper = await find_upper_layer(engine, container)
    if upper is None:
        raise DockerEngineError("the engine's storage keeps no layer that a disk could be given to")
    layer = upper.parent

    async def mount() -> None:
        await asyncio.to_thread(_mount_over, layer, size)

    async def keep(_: None) -> None:
        """It goes with its container, which is not to be removed while it is being mounted."""

    try:
        await call_with_undo(mount, keep)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise DockerEngineError(
            f"container {container[:12]} could not be given a disk of its own: {said or error}"
        ) from error


async def daemon_sees_loop_disk(engine: DockerEngine, container: str) -> bool:
    """Whether what the daemon writes into a container is on the disk that it was given: a daemon in a mount namespace
    of its own does not see that.  Raises EngineError."""
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
    """Blocks.  What is in the folder is found in the file system again."""
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
