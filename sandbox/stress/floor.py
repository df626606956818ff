"""Measures the bare machine: a sleeping container's start, one `docker exec`, a shell behind pipes, stolen CPU time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from protocol.errors import InfraError, UserError
from sandbox.docker.address import DockerAddress
from sandbox.docker.engine import DockerEngine
from sandbox.stress.concurrency import for_each

_CALL_S = 120.0
_SLEEP_S = 900
"""A sleeping container of a run that was killed ends by itself."""


class StartFloor:
    """Containers that only sleep, with the image and the HostConfig of a real sandbox."""

    def __init__(self, engine: DockerEngine, like: dict[str, Any]) -> None:
        """``like``: what the engine says of a running sandbox (``GET /containers/ID/json``)."""
        config = like["Config"]
        self._engine = engine
        self._body = {
            "Image": config["Image"],
            "Entrypoint": [],
            "Cmd": ["sleep", str(_SLEEP_S)],
            "Env": config["Env"],
            "User": config["User"],
            "Labels": config["Labels"],
            "NetworkDisabled": like["HostConfig"]["NetworkMode"] == "none",
            "HostConfig": like["HostConfig"],
        }

    async def time_starts(self, count: int, at_once: int) -> float:
        """Seconds for ``count`` starts.  They are removed when the clock has stopped.  Raises EngineError."""
        made: list[str] = []

        async def one(_: int) -> None:
            container = await self._engine.create_from_body("create a sleeping container", self._body)
            made.append(container)
            await self._engine.start(container)

        began = time.perf_counter()
        try:
            await for_each(range(count), one, at_once)
            return time.perf_counter() - began
        finally:
            await asyncio.shield(for_each(made, self._engine.remove, at_once))


async def time_docker_exec(url: str, container: str, word: str) -> float:
    """Milliseconds of one `docker exec CONTAINER echo WORD`.  Raises InfraError, UserError without a docker."""
    began = time.perf_counter()
    said = await run_docker(url, "exec", container, "echo", word)
    ms = (time.perf_counter() - began) * 1000
    if said != f"{word}\n":
        raise InfraError(f"`docker exec … echo {word}` printed {said[:200]!r}")
    return ms


async def run_docker(url: str, *arguments: str) -> str:
    """Return what the docker command prints.  Raises InfraError when it fails, UserError when it is not installed."""
    address = DockerAddress.parse(url)
    env = {**os.environ, "DOCKER_HOST": str(address).partition("?")[0]}
    if address.certs:
        env |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": address.certs}
    try:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251  stress runs asyncio's own loop
            "docker", *arguments, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except FileNotFoundError as error:
        raise UserError("the docker command is not installed: its `exec` is one of the floors") from error
    try:
        async with asyncio.timeout(_CALL_S):
            said, complaint = await process.communicate()
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        if isinstance(error, TimeoutError):
            raise InfraError(f"`docker {arguments[0]}` did not end within {_CALL_S:g} s") from error
        raise
    if process.returncode:
        raise InfraError(f"`docker {arguments[0]}` failed: {complaint.decode(errors='replace').strip()[-300:]}")
    return said.decode(errors="replace")


class LocalShell:
    """A bash of this host behind two pipes, that evaluates and reports as the sandboxes' own shells do."""

    LOOP = "while IFS= read -r -d '' __c; do eval \"$__c\"; printf '%d %s\\0' $? \"$PWD\"; done"

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the shell needs both pipes")
        self._in, self._out = process.stdin, process.stdout

    async def echo(self, word: str) -> float:
        """Milliseconds of one `echo`.  Raises InfraError."""
        began = time.perf_counter()
        self._in.write(f"echo {word}\0".encode())
        async with asyncio.timeout(_CALL_S):
            said = await self._out.readuntil(b"\0")
        ms = (time.perf_counter() - began) * 1000
        if not said.startswith(f"{word}\n0 ".encode()):
            raise InfraError(f"the local shell answered {said[:200]!r} to `echo {word}`")
        return ms


@asynccontextmanager
async def open_local_shell() -> AsyncGenerator[LocalShell]:
    process = await asyncio.create_subprocess_exec(  # noqa: TID251  stress runs asyncio's own loop
        "bash", "--noprofile", "--norc", "-c", LocalShell.LOOP, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield LocalShell(process)
    finally:
        process.kill()
        await asyncio.shield(process.wait())


class CpuStealMeter:
    """The processors' time since this was made."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def _read(self) -> tuple[int, int]:
        ticks = [int(word) for word in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)

    def share(self) -> float | None:
        """0 to 1; None before the first tick."""
        (stolen_before, all_before), (stolen, total) = self._before, self._read()
        return (stolen - stolen_before) / (total - all_before) if total > all_before else None


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
