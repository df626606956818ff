"""Runs a program in a container by the engine itself (``docker exec``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.processes.cancellation import temporary_resource
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import call_with_retries

_NOT_THERE = frozenset({126, 127})
"""Exit codes that an engine gives for a program that it does not find."""


class ExecutedProgram(NamedTuple):
    """What a program has left."""

    exit_code: int
    output: str


async def execute(engine: DockerEngine, container: str, command: Sequence[str], what: str) -> ExecutedProgram:
    """Run ``command`` as root to its end; ``what`` describes it in errors.  Raises DockerEngineError."""

    async def call() -> ExecutedProgram:
        execution = await engine.docker.containers.container(container).exec(command, user="0:0", workdir="/")  # pyright: ignore[reportUnknownMemberType]  untyped in aiodocker
        async with execution.start(detach=False) as output:
            said = b""
            while message := await output.read_out():
                said += message.data
        return ExecutedProgram((await execution.inspect())["ExitCode"], said.decode(errors="replace"))

    return await call_with_retries(what, call, frozenset(), idempotent=False)


async def leaves_container(engine: DockerEngine, spec: ContainerSpec) -> bool:
    """Try on a container like ``spec``, which runs for the moment, whether what the engine executes in it runs
    elsewhere: a dockerd that was started by chroot alone executes it in the root of its machine.

    Raises DockerEngineError.
    """
    async with temporary_resource(lambda: engine.create(spec), engine.remove) as container:
        await engine.start(container)
        done = await execute(engine, container, ["/.sbx/busybox", "true"], f"run a program in {container[:12]}")
    return done.exit_code in _NOT_THERE
