"""The services and networks around a session's container: services on a private network, and a network for each phase.

A task that needs neither costs the daemon no extra call. Everything here is a context manager and ends with its block.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandbox.docker.container_spec import VolumeMount
from sandbox.docker.engine import DockerEngine
from sandbox.images.store import ImageStore
from sandbox.networking.networks import NO_NETWORK, SandboxNetworks
from sandbox.networking.phases import NetworkPhases, names_beside_proxy
from sandbox.networking.service_requests import TaskServiceSettings, volume_mounts
from sandbox.networking.services import AgentVolumes, adopt_services, start_services
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task


@dataclass(frozen=True, slots=True)
class ContainerNetwork:
    """Network, variables and volumes with which a container must be created to reach its services, and they it."""

    network: str = NO_NETWORK
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    volumes: tuple[VolumeMount, ...] = ()
    aliases: tuple[str, ...] = ()


def is_single_container(task: Task) -> bool:
    """Return whether a task needs only one container: no services, and no network for the agent or the tests."""
    return not task.services and task.network.is_offline


class TaskServices:
    """Starts the services and networks of one pool's sandboxes."""

    def __init__(
        self,
        engine: DockerEngine,
        images: ImageStore,
        networks: SandboxNetworks,
        service_settings: Callable[[float], TaskServiceSettings],
    ) -> None:
        """``service_settings(lifetime_s)`` returns the settings of services that end after ``lifetime_s`` seconds."""
        self._engine, self._images, self._networks = engine, images, networks
        self._service_settings = service_settings

    @asynccontextmanager
    async def started_for(self, task: Task, image: str, lifetime_s: float) -> AsyncGenerator[ContainerNetwork]:
        """Start what must exist before the task's container, of ``image``, and outlive it.

        Raises SandboxStartError (TaskFault for a service that does not run, or a host that only the operator may
        allow), UserError, DockerEngineError.
        """
        if is_single_container(task):
            yield ContainerNetwork()
            return
        settings = self._service_settings(lifetime_s)
        async with start_services(
            self._engine, self._images, self._networks, task.services, settings, agent=AgentVolumes(image, task.volumes)
        ) as private:
            yield self._container_network(task, await self._networks.container_network(task.network, private), private)

    @asynccontextmanager
    async def adopted_for(self, task: Task, container: str) -> AsyncGenerator[ContainerNetwork]:
        """Take over the same for a container of an earlier process. Raises SandboxLost, DockerEngineError."""
        if is_single_container(task):
            yield ContainerNetwork()
            return
        async with adopt_services(self._engine, self._images, task.services, container) as private:
            yield self._container_network(task, await self._networks.container_network(task.network, private), private)

    def _container_network(self, task: Task, network: str, private: str) -> ContainerNetwork:
        env = self._networks.proxy_environment(task.network, private, names_beside_proxy(task))
        return ContainerNetwork(network, env, volume_mounts(private, task.volumes), task.aliases if private else ())

    @asynccontextmanager
    async def network_phases(self, task: Task, session: SandboxSession) -> AsyncGenerator[None]:
        """Give the session the agent's network, and let its tests have theirs when they run.

        Raises UserError where a network is impossible, DockerEngineError.
        """
        if task.network.is_offline:
            yield
            return
        phases = NetworkPhases(self._networks, session, task)
        await phases.enter_agent_network()
        session.verification_network = phases.verification_network
        try:
            yield
        finally:
            await phases.close()
