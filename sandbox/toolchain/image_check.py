"""Checks whether the toolchain works in an image, by starting its programs there once, without a network."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from sandbox.docker.container_spec import mount_read_only
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.toolchain.in_container.layout import BASH, BUSYBOX, GNU, verify_environment
from sandbox.toolchain.in_container.pins import TOOL_NAMES

_CHECK_S = 120.0
_LOG_BYTES = 4000
_NO_IMAGE = (400, 404)
_SCRIPT = f"""
libc=unknown
for file in /lib/ld-musl-* /lib64/ld-linux-* /lib/ld-linux-*; do
    [ -e "$file" ] || continue
    case $file in *musl*) libc=musl ;; *) libc=glibc ;; esac
done
echo "libc $libc"
{BASH} -c : && for tool in {" ".join(TOOL_NAMES)}; do "{GNU}/$tool" --version >/dev/null || exit; done &&
    uv --version >/dev/null && uvx pytest --version >/dev/null &&
    uvx --from harbor-rewardkit rewardkit --help >/dev/null &&
    uv run python -c 'import ctypes, json, lzma, sqlite3, ssl; print("works")'
"""


@dataclass(frozen=True, slots=True)
class ToolchainCheck:
    image: str
    works: bool
    libc: str
    """``glibc``, ``musl``, or ``unknown`` for an image that has neither."""
    problem: str
    """Error output of the programs; empty if all of them work."""


async def check_image(engine: DockerEngine, toolchain: Path, image: str) -> ToolchainCheck:
    """Check one image. Raises DockerEngineError for failures that the image did not cause."""
    body = {
        "Image": image,
        "Entrypoint": [],
        "Cmd": [BUSYBOX, "sh", "-c", _SCRIPT],
        "Env": [f"{key}={value}" for key, value in verify_environment("/usr/bin:/bin", "/tmp").items()],  # noqa: S108  inside a throw-away container
        "User": "0:0",
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": 64,
            "Memory": 512 << 20,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}},
            "Mounts": [mount_read_only(toolchain, "/.sbx")],
        },
    }
    try:
        container = await engine.create_from_body(f"create a container of {image}", body)
    except DockerEngineError as error:
        if error.status not in _NO_IMAGE:
            raise
        problem = f"{error}; try `longshore images pull {image}`"
        return ToolchainCheck(image, works=False, libc="unknown", problem=problem)
    try:
        await engine.start(container)
        await _ended(engine, container)
        log = await engine.logs(container)
    finally:
        await asyncio.shield(engine.remove(container))
    lines = log.splitlines()
    libc = next((line.split()[1] for line in lines if line.startswith("libc ")), "unknown")
    works = "works" in lines
    trouble = [line for line in lines if not line.startswith("libc ")]
    return ToolchainCheck(
        image, works, libc, "" if works else "\n".join(trouble)[-_LOG_BYTES:] or "its shell did not start"
    )


async def _ended(engine: DockerEngine, container: str) -> None:
    try:
        async with asyncio.timeout(_CHECK_S):
            while (await engine.inspect(container))["State"]["Running"]:  # noqa: ASYNC110  the daemon has no event for it
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise DockerEngineError(
            f"the toolchain's check in {container[:12]} did not end within {_CHECK_S:g} s"
        ) from error
