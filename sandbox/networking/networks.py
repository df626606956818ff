"""The networks of sandboxes, phase by phase.

``none`` is the container's own namespace with nothing but its loopback. ``proxy`` adds the egress proxy
(:mod:`sandbox.egress_proxy`) on that loopback, opened for a phase and closed after it, so that the tests do not share
the agent's network. ``full`` is a bridge that the engine's sandboxes share. Where a container is not on the bridge
(its agent has less, or the engine has no bridge to the outside, like the one that ``longshore host up``
starts), ``full`` is the proxy with every public host allowed. A session's services have a private network without a
route outside, not even to this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from protocol.processes.cancellation import call_to_end, call_with_undo
from sandbox.docker import owner
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import OWNER_LABEL, POOL_LABEL
from sandbox.docker.network import private_networks
from sandbox.docker.network.container_sockets import container_process
from sandbox.docker.retry import BUSY_STATUSES, DockerEngineError, Json, call_with_retries
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.images.build_network import BuildNetworkAccess, refuse_to_fetch
from sandbox.session.init_connection.init_command import init_command
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

NO_NETWORK = "none"
SHARED_NETWORK = f"{private_networks.NETWORK_PREFIX}full"
_BUILD_MAX_S = 6 * 3600.0
_TABLES = ("HostsPath", "ResolvConfPath")
_TABLE_BYTES = 1 << 20


def has_bridge(networks: Iterable[str]) -> bool:
    """Return whether an engine with these networks forwards packets from a bridge to the outside."""
    return not {"bridge", "podman"}.isdisjoint(networks)


class NetworkTamperedError(DockerEngineError):
    """A program in the sandbox wrote a file that keeps its container off a network."""


@dataclass(frozen=True, slots=True)
class BuildNetworkContainer:
    """Specification of the container whose namespace a build's RUN steps use behind the proxy."""

    image: str
    toolchain: Path
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels in addition to the owner's; a clean-up by them removes the container when its process dies."""


class SandboxNetworks:
    """The networks of one engine's sandboxes; :meth:`open` creates it."""

    def __init__(
        self, engine: DockerEngine, proxy: LazyEgressProxy, build_host: BuildNetworkContainer, *, has_bridge: bool
    ) -> None:
        self._engine, self._proxy, self._build_host = engine, proxy, build_host
        self.has_bridge = has_bridge
        """True if the engine forwards packets from a bridge to the outside."""

    @classmethod
    async def open(
        cls, engine: DockerEngine, proxy: LazyEgressProxy, build_host: BuildNetworkContainer
    ) -> SandboxNetworks:
        """List the engine's networks and open them. Raises DockerEngineError."""

        async def call() -> bool:
            return has_bridge(each["Name"] for each in await engine.docker.networks.list())

        return cls(
            engine, proxy, build_host, has_bridge=await call_with_retries("list the networks", call, BUSY_STATUSES)
        )

    async def container_network(self, network: TaskNetwork, private: str) -> str:
        """Return the network on which to create a session's container; ``private`` is that of its services, if any.

        On :data:`SHARED_NETWORK` the container must be created with ``resolves_public_names``.  Raises TaskFault for
        a host that only the operator may allow.
        """
        self._proxy.check_hosts(network)
        if private or network.agent is not NetworkMode.FULL or not self.has_bridge:
            return private or NO_NETWORK
        await self._share()
        return SHARED_NETWORK

    def proxy_environment(
        self, network: TaskNetwork, private: str, service_names: Iterable[str] = ()
    ) -> Mapping[str, str]:
        """Return the variables that the agent's shell needs; ``service_names`` are reached without the proxy."""
        direct = network.agent is NetworkMode.FULL and self.has_bridge and not private
        return {} if network.agent is NetworkMode.NONE or direct else self._proxy.environment(service_names)

    @asynccontextmanager
    async def phase(
        self, container: str, mode: NetworkMode, hosts: tuple[str, ...] = (), service_names: Iterable[str] = ()
    ) -> AsyncGenerator[Mapping[str, str]]:
        """Give a running container the network of a phase; yields the variables that its programs need.

        Raises UserError where ``proxy`` is impossible, NetworkTamperedError where the agent prevents it,
        DockerEngineError.
        """
        facts = await self._engine.inspect(container)
        is_on_it = SHARED_NETWORK in (facts["NetworkSettings"]["Networks"] or {})
        made_for_it = is_on_it or facts["HostConfig"]["NetworkMode"] == SHARED_NETWORK
        everywhere = mode is NetworkMode.FULL
        if made_for_it and everywhere != is_on_it:
            await asyncio.to_thread(_check_tables, facts)
            await self._attach(container, on=everywhere)
        if mode is NetworkMode.NONE or (made_for_it and everywhere):
            yield {}
            return
        pid, confirm = container_process(self._engine, container, facts)
        proxy = await self._proxy.get()
        async with proxy.opened(pid, hosts, everywhere=everywhere, service_names=service_names, confirm=confirm) as env:
            yield env

    @asynccontextmanager
    async def build_network(self, mode: NetworkMode, hosts: tuple[str, ...]) -> AsyncGenerator[BuildNetworkAccess]:
        """Yield the network of a build's RUN steps; a :data:`~sandbox.images.build_network.BuildNetworkOpener`."""
        if mode is NetworkMode.NONE:
            yield BuildNetworkAccess(NO_NETWORK, {}, refuse_to_fetch)
            return

        async def fetch(url: str, most_bytes: int) -> bytes:
            proxy = await self._proxy.get()
            return await proxy.fetch(url, hosts, most_bytes, everywhere=mode is NetworkMode.FULL)

        if mode is NetworkMode.FULL and self.has_bridge:
            yield BuildNetworkAccess("default", {}, fetch)
            return
        host = self._build_host
        labels = {
            POOL_LABEL: "build",
            OWNER_LABEL: owner.owner_of_this_process(),
            **host.labels,
        }
        spec = ContainerSpec(host.image, host.toolchain, labels, init_command(_BUILD_MAX_S, _BUILD_MAX_S, "/"))
        container = await call_with_undo(lambda: self._engine.create(spec), self._engine.remove)
        try:
            await self._engine.start(container)
            async with self.phase(container, mode, hosts) as env:
                yield BuildNetworkAccess(f"container:{container}", env, fetch)
        finally:
            await call_to_end(lambda: self._engine.remove(container))

    @asynccontextmanager
    async def private_network(self, labels: Mapping[str, str]) -> AsyncGenerator[str]:
        """Create a network for one session, removed at the end; yields its name. Raises DockerEngineError."""
        name = await private_networks.create_private_network(
            self._engine, {OWNER_LABEL: owner.owner_of_this_process(), **labels}
        )
        try:
            yield name
        finally:
            await asyncio.shield(private_networks.remove_network(self._engine, name))

    async def _share(self) -> None:
        options = {"com.docker.network.bridge.enable_icc": "false"}  # no sandbox reaches another
        try:
            body: Json = {"Name": SHARED_NETWORK, "CheckDuplicate": True, "Driver": "bridge", "Options": options}
            await private_networks.create_network(self._engine, body)
        except DockerEngineError as error:
            if "already exists" not in str(error):
                raise

    async def _attach(self, container: str, *, on: bool) -> None:
        """Connect a container to the shared bridge, or disconnect it."""

        async def call() -> None:
            network = await self._engine.docker.networks.get(SHARED_NETWORK)
            if on:
                await network.connect({"Container": container})
            else:
                await network.disconnect({"Container": container, "Force": True})

        await call_with_retries(
            f"put container {container[:12]} {'on' if on else 'off'} the network", call, BUSY_STATUSES
        )


def _check_tables(facts: Json) -> None:
    """Check the daemon's own files that are mounted into a container and that the daemon reads when its network
    changes.

    Raises NetworkTamperedError; files that this process may not see are not checked.
    """
    for path in (Path(facts[name]) for name in _TABLES if facts.get(name)):
        size = 0
        with contextlib.suppress(OSError):
            size = path.stat().st_size
        if size > _TABLE_BYTES:
            raise NetworkTamperedError(f"its {path.name} is {size >> 10} KiB long")
