"""A second container for a session's tests: same owner, own deadline, removed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from sandbox.docker.container_spec import ContainerSpec, VolumeMount
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost
from sandbox.session.sandbox_session import SandboxSession, SessionLimits

SETUP_TIMEOUT_S = 120.0
SPARE_S = 300.0
"""Maximum seconds that such a container lives on a busy host, beyond setup and tests."""


def spec_of(session: SandboxSession) -> ContainerSpec:
    """Return the specification of the session's container. Raises SandboxLost if it is unknown."""
    if session.spec is None:
        raise SandboxLost(f"container {session.container[:12]} cannot be copied: its specification is unknown")
    return session.spec


@asynccontextmanager
async def open_second_container(
    session: SandboxSession, spec: ContainerSpec, workdir: str, test_timeout_s: float
) -> AsyncGenerator[SandboxSession]:
    """Start a container of ``spec`` and remove it when the block ends; new volumes replace those that it names.

    The session's container keeps its names on a private network.
    """
    spec = replace(spec, volumes=tuple(VolumeMount("", each.target) for each in spec.volumes), aliases=())
    life = SETUP_TIMEOUT_S + test_timeout_s + SPARE_S
    test_session = await SandboxSession.start(session.engine, spec, workdir, SessionLimits(life, life))
    test_session.tests_user = session.tests_user
    try:
        with session.watch_verifier(test_session):
            yield test_session
    finally:
        await asyncio.shield(_end(test_session))


async def _end(test_session: SandboxSession) -> None:
    """Remove the container. If that fails, the pool does it later; the verdict is kept."""
    with suppress(DockerEngineError):
        await test_session.close()
        await test_session.engine.remove(test_session.container)  # its image can only be removed after it
