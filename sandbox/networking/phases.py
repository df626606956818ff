"""Switches a session's network: the agent's, then the tests' while they run, then the agent's again.

Only the difference between the two phases is changed, in the running container; its shells keep running.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from protocol.errors import InfraError
from sandbox.docker.container_spec import HOSTNAME
from sandbox.docker.network.network_namespace import NamespacePortTakenError
from sandbox.errors import SandboxDestroyed
from sandbox.networking.networks import NetworkTamperedError, SandboxNetworks
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task


def names_beside_proxy(task: Task) -> tuple[str, ...]:
    """Return the names that programs of a task reach without the proxy: its container's, and those of its services."""
    return (task.hostname or HOSTNAME, *task.aliases, *task.service_names)


class NetworkPhases:
    """The phases of one session; its :meth:`verification_network` is the session's."""

    def __init__(self, networks: SandboxNetworks, session: SandboxSession, task: Task) -> None:
        self._networks, self._session, self._network = networks, session, task.network
        self._service_names = names_beside_proxy(task)
        self._agent_network = AsyncExitStack()
        self._env: Mapping[str, str] = {}
        self._closed = False

    async def enter_agent_network(self) -> None:
        """Give the session the agent's network. Raises UserError where it is impossible, DockerEngineError."""
        network = self._network
        self._env = await self._agent_network.enter_async_context(
            self._networks.phase(self._session.container, network.agent, network.allowed_hosts, self._service_names)
        )

    async def close(self) -> None:
        """Close the agent's network."""
        self._closed = True
        await self._agent_network.aclose()

    @asynccontextmanager
    async def verification_network(self, verifier: SandboxSession) -> AsyncGenerator[Mapping[str, str]]:
        """Give ``verifier`` the network of the tests; yields the variables that they need.

        Raises UserError where it is impossible, SandboxDestroyed where the agent prevents it, DockerEngineError.
        """
        if not self._shares_agent_network(verifier):
            async with self._verify(verifier.container) as env:
                yield env
        elif self._network.agent is self._network.verify:
            yield self._env
        else:
            await self._agent_network.aclose()
            try:
                async with AsyncExitStack() as stack:
                    try:
                        env = await stack.enter_async_context(self._verify(self._session.container))
                    except (NamespacePortTakenError, NetworkTamperedError) as error:
                        raise SandboxDestroyed(f"the agent prevents the tests' network: {error}") from error
                    yield env
            finally:
                await asyncio.shield(self._restore_agent_network())

    def _shares_agent_network(self, verifier: SandboxSession) -> bool:
        """Return whether the verifier runs in the network of the agent's container."""
        joined = verifier.spec is not None and verifier.spec.network == f"container:{self._session.container}"
        return joined or verifier is self._session

    def _verify(self, container: str) -> contextlib.AbstractAsyncContextManager[Mapping[str, str]]:
        network = self._network
        return self._networks.phase(container, network.verify, network.allowed_hosts, self._service_names)

    async def _restore_agent_network(self) -> None:
        """Return to the agent's network for a session that continues after its tests, or to none if that fails."""
        if self._session.alive and not self._closed:
            with contextlib.suppress(InfraError):
                await self.enter_agent_network()
