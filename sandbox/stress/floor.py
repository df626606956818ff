"""Measures the bare machine: start of a sleeping container, one `docker exec`, a shell behind pipes, stolen CPU
time."""

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
"""Seconds after which a sleeping container of a killed run ends by itself."""


class StartFloor:
    """Starts containers that only sleep, with the image and the HostConfig of a real sandbox."""

    def __init__(self, engine: DockerEngine, like: dict[str, Any]) -> None:
        """``like``: the engine's description of a running sandbox (``GET /containers/ID/json``)."""
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
        """Return the seconds for ``count`` starts; the containers are removed afterwards. Raises DockerEngineError."""
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
    """Return the milliseconds of one `docker exec CONTAINER echo WORD`. Raises InfraError, UserError without docker."""
    began = time.perf_counter()
    output = await run_docker(url, "exec", container, "echo", word)
    ms = (time.perf_counter() - began) * 1000
    if output != f"{word}\n":
        raise InfraError(f"`docker exec … echo {word}` printed {output[:200]!r}")
    return ms


async def run_docker(url: str, *arguments: str) -> str:
    """Return the output of the docker command. Raises InfraError if it fails, UserError if it is not installed."""
    address = DockerAddress.parse(url)
    env = {**os.environ, "DOCKER_HOST": str(address).partition("?")[0]}
    if address.certs:
        env |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": address.certs}
    try:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251  stress runs asyncio's own loop
            "docker", *arguments, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except FileNotFoundError as error:
        raise UserError("the docker command is not installed: the run measures its `exec`") from error
    try:
        async with asyncio.timeout(_CALL_S):
            output, errors = await process.communicate()
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        if isinstance(error, TimeoutError):
            raise InfraError(f"`docker {arguments[0]}` did not end within {_CALL_S:g} s") from error
        raise
    if process.returncode:
        raise InfraError(f"`docker {arguments[0]}` failed: {errors.decode(errors='replace').strip()[-300:]}")
    return output.decode(errors="replace")


class LocalShell:
    """A bash on this host behind two pipes, which evaluates a command and reports its end."""

    LOOP = "while IFS= read -r -d '' __c; do eval \"$__c\"; printf '%d %s\\0' $? \"$PWD\"; done"

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the shell needs both pipes")
        self._in, self._out = process.stdin, process.stdout

    async def echo(self, word: str) -> float:
        """Return the milliseconds of one `echo`. Raises InfraError."""
        began = time.perf_counter()
        self._in.write(f"echo {word}\0".encode())
        async with asyncio.timeout(_CALL_S):
            answer = await self._out.readuntil(b"\0")
        ms = (time.perf_counter() - began) * 1000
        if not answer.startswith(f"{word}\n0 ".encode()):
            raise InfraError(f"the local shell answered {answer[:200]!r} to `echo {word}`")
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
    """Measures the share of CPU time that the hypervisor has stolen since its creation."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def _read(self) -> tuple[int, int]:
        ticks = [int(word) for word in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)

    def share(self) -> float | None:
        """Return the share, 0 to 1; None before the first tick."""
        (stolen_before, all_before), (stolen, total) = self._before, self._read()
        return (stolen - stolen_before) / (total - all_before) if total > all_before else None


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
