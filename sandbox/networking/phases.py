"""Which network a session has at a time: its agent's; while tests run, theirs; then its agent's again.

Only what the two phases differ in is changed, in the running container: its shells notice nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from protocol.errors import InfraError
from sandbox.docker.network_namespace import PortTakenError
from sandbox.errors import SandboxDestroyed
from sandbox.networking.networks import NetworkTamperedError, SandboxNetworks
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task


class NetworkPhases:
    """Of one session; :attr:`SandboxSession.verifying` is its :meth:`verifying`."""

    def __init__(self, networks: SandboxNetworks, session: SandboxSession, task: Task) -> None:
        self._networks, self._session, self._network = networks, session, task.network
        self._beside = tuple(service.name for service in task.services)
        self._agents = AsyncExitStack()
        self._env: Mapping[str, str] = {}
        self._closed = False

    async def enter_agent_network(self) -> None:
        """The agent's.  Raises UserError where it cannot be had, EngineError."""
        network = self._network
        self._env = await self._agents.enter_async_context(
            self._networks.phase(self._session.container, network.agent, network.allowed_hosts, self._beside)
        )

    async def close(self) -> None:
        self._closed = True
        await self._agents.aclose()

    @asynccontextmanager
    async def verification_network(self, bench: SandboxSession) -> AsyncGenerator[Mapping[str, str]]:
        """``bench`` has the tests' network.  Yields what they need in their environment.

        Raises UserError where it cannot be had, SandboxDestroyed where the agent prevents it, EngineError.
        """
        if not self._is_agents(bench):
            async with self._verify(bench.container) as env:
                yield env
        elif self._network.agent is self._network.verify:
            yield self._env
        else:
            await self._agents.aclose()
            try:
                async with AsyncExitStack() as stack:
                    try:
                        env = await stack.enter_async_context(self._verify(self._session.container))
                    except (PortTakenError, NetworkTamperedError) as error:
                        raise SandboxDestroyed(f"the agent keeps its tests from their network: {error}") from error
                    yield env
            finally:
                await asyncio.shield(self._again())

    def _is_agents(self, bench: SandboxSession) -> bool:
        """Whether it runs in the network of the agent's container."""
        joined = bench.spec is not None and bench.spec.network == f"container:{self._session.container}"
        return joined or bench is self._session

    def _verify(self, container: str) -> contextlib.AbstractAsyncContextManager[Mapping[str, str]]:
        network = self._network
        return self._networks.phase(container, network.verify, network.allowed_hosts, self._beside)

    async def _again(self) -> None:
        """The agent's network, for one that goes on after its tests; without it where it cannot be had."""
        if self._session.alive and not self._closed:
            with contextlib.suppress(InfraError):
                await self.enter_agent_network()
