"""One more container beside the agent's, for its tests: same owner, own deadline, removed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.tasks.task import Task

SETUP_TIMEOUT_S = 120.0
SPARE_S = 300.0
"""Longest life of such a container on a busy host, beyond setup and tests."""


def spec_of(session: SandboxSession) -> ContainerSpec:
    """Return how the session's container was made.  Raises SandboxLost when nobody knows."""
    if session.spec is None:
        raise SandboxLost(f"container {session.container[:12]} cannot be copied: nobody knows how it was made")
    return session.spec


@asynccontextmanager
async def open_second_container(
    session: SandboxSession, spec: ContainerSpec, task: Task, test_timeout_s: float
) -> AsyncGenerator[SandboxSession]:
    """Start a container of ``spec`` and remove it when the block ends."""
    life = SETUP_TIMEOUT_S + test_timeout_s + SPARE_S
    bench = await SandboxSession.start(session.engine, spec, task.workdir, SessionLimits(life, life))
    try:
        with session.watch_verifier(bench):
            yield bench
    finally:
        await asyncio.shield(_end(bench))


async def _end(bench: SandboxSession) -> None:
    """Remove the container.  If that fails the sweep does it later; the verdict stands."""
    with suppress(DockerEngineError):
        await bench.close()
        await bench.engine.remove(bench.container)  # its image can only go after it
