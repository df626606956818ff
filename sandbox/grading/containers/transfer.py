"""Transfers from the agent's container: freezes it meanwhile, and blames the agent for a failure only with evidence.

The evidence: the transfer fails, the daemon then does the same with a container of the task's own image, and the
transfer fails again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import TypeVar

from protocol.errors import InfraError
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.files.committed_images import committed_image
from sandbox.docker.labels import NETWORK_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxDestroyed, SandboxStartError
from sandbox.grading.containers.agent_processes import kill_agent_processes
from sandbox.grading.containers.artifacts import UnfitArtifactError
from sandbox.grading.containers.container_calls import pause_container
from sandbox.grading.containers.second_container import open_second_container
from sandbox.session.sandbox_session import SandboxSession

T = TypeVar("T")
_REFUSED = (DockerEngineError, SandboxStartError)


@asynccontextmanager
async def freeze_agent(session: SandboxSession, *, live: bool) -> AsyncGenerator[None]:
    """Freeze the agent's container until the block ends; if that fails, kill its processes instead.

    Services that share a volume with it are frozen too, as far as that is possible: a file that grows while it is
    copied makes the copy fail.  ``live``: its processes must keep running; then a failure is raised as
    DockerEngineError.
    """
    async with AsyncExitStack() as stack:
        for service in await _sharing_services(session):
            with suppress(DockerEngineError):
                await stack.enter_async_context(pause_container(session.engine, service))
        try:
            await stack.enter_async_context(pause_container(session.engine, session.container))
        except DockerEngineError:
            if live and session.alive:
                raise
            await kill_agent_processes(session)  # and if the container has ended, it raises the cause
        yield


async def _sharing_services(session: SandboxSession) -> list[str]:
    """Return the running services of a session whose container shares volumes."""
    if session.spec is None or not session.spec.volumes:
        return []
    services = await session.engine.containers({NETWORK_LABEL: session.spec.network})
    return [each.id for each in services if each.state == "running"]


async def retry_transfer(work: Callable[[], Awaitable[T]], works: Callable[[], Awaitable[bool]]) -> T:
    """Return the result of ``work``, tried twice if ``works`` holds after the first failure.

    Raises UnfitArtifactError after the second failure, else the first one.
    """
    try:
        return await work()
    except _REFUSED:
        if not await works():
            raise
    try:
        return await work()
    except _REFUSED as error:
        raise UnfitArtifactError(str(error)) from error


async def untouched_container_works(session: SandboxSession, spec: ContainerSpec, workdir: str, *, live: bool) -> bool:
    """Return whether the daemon starts, freezes (if ``live``) and copies a container of the task's own image.

    Raises the reason if the agent's container has ended.
    """
    if not session.alive:
        raise await session.end_reason()
    with suppress(InfraError, SandboxDestroyed):
        async with (
            open_second_container(session, spec, workdir, 0.0) as other,
            pause_container(session.engine, other.container) if live else nullcontext(),
            committed_image(session.engine, other.container, pause=False),
        ):
            return True
    return False
