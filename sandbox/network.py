"""What a sandbox can reach, phase by phase.

``none`` is the container's own namespace with nothing but its loopback.  ``proxy`` is the same with the gate's door in
it (:mod:`sandbox.gate`): opened for a phase and closed after it, so that an agent's network is not the tests'.
``full`` is a bridge that the engine's sandboxes share; where a container is not on it (its agent has less, or the
engine has no bridge that leads anywhere, as the one that ``python -m sandbox.host up`` starts), ``full`` is the gate to
every public host.  A session's services have a private network from which nothing leads out, not even to this machine.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiodocker

from protocol.errors import UserError
from sandbox import owner
from sandbox.engine import ContainerSpec, DockerEngine, EngineError, retried
from sandbox.gate import Gate
from sandbox.images.store import BuildPlace
from sandbox.tasks.task import Network, NetworkMode

NONE = "none"
SHARED = "longshore-full"
LABEL = "longshore"
_FIRST_SUBNET, _SUBNETS, _SUBNET_ADDRESSES = (10 << 24) + (213 << 16), 4096, 16
_TRIES = 64
_RETRIED = frozenset({500, 502, 503})
_TEARDOWN_S = 30.0
_LOOK_AGAIN_S = 0.1
_BUILD_MAX_MS = 6 * 3600_000


@dataclass(frozen=True, slots=True)
class BuildHost:
    """What holds the namespace in which a build's RUN steps run behind the gate."""

    image: str
    kit: Path


class SandboxNetworks:
    """Of one engine.  Made by :meth:`open`."""

    def __init__(self, engine: DockerEngine, gate: Gate | None, build_host: BuildHost, *, has_bridge: bool) -> None:
        self._engine, self._gate, self._build_host = engine, gate, build_host
        self.has_bridge = has_bridge
        """The engine forwards packets of a bridge to the world."""

    @classmethod
    async def open(cls, engine: DockerEngine, gate: Gate | None, build_host: BuildHost) -> SandboxNetworks:
        """Raises EngineError."""

        async def call() -> bool:
            return any(each["Name"] in ("bridge", "podman") for each in await engine.docker.networks.list())

        return cls(engine, gate, build_host, has_bridge=await retried("list the networks", call, _RETRIED))

    async def of_container(self, network: Network, private: str) -> str:
        """The network on which a session's container is created; ``private`` is its services', if it has any.

        On :data:`SHARED` the container is to be created with ``resolves``.
        """
        if private or network.agent is not NetworkMode.FULL or not self.has_bridge:
            return private or NONE
        await self._share()
        return SHARED

    def environment(self, network: Network, private: str) -> Mapping[str, str]:
        """What the agent's shell needs in its environment."""
        direct = network.agent is NetworkMode.FULL and self.has_bridge and not private
        if network.agent is NetworkMode.NONE or direct or self._gate is None:
            return {}
        return self._gate.environment()

    @asynccontextmanager
    async def phase(
        self, container: str, mode: NetworkMode, hosts: tuple[str, ...] = ()
    ) -> AsyncGenerator[Mapping[str, str]]:
        """Give a running container this phase's network.  Yields what its programs need in their environment.

        Raises UserError where ``proxy`` cannot be had, EngineError.
        """
        facts = await self._engine.inspect(container)
        shared = SHARED in facts["NetworkSettings"]["Networks"]
        if shared and mode is not NetworkMode.FULL:
            await self._leave(container)
        if mode is NetworkMode.NONE or (shared and mode is NetworkMode.FULL):
            yield {}
            return
        everywhere = mode is NetworkMode.FULL
        async with self._need_gate().opened(int(facts["State"]["Pid"]), hosts, everywhere=everywhere) as env:
            yield env

    @asynccontextmanager
    async def for_build(self, mode: NetworkMode, hosts: tuple[str, ...]) -> AsyncGenerator[BuildPlace]:
        """Where the RUN steps of a build run; an :data:`~sandbox.images.store.BuildNetwork`."""
        if mode is NetworkMode.NONE or (mode is NetworkMode.FULL and self.has_bridge):
            yield BuildPlace(NONE if mode is NetworkMode.NONE else "default", {})
            return
        labels = {f"{LABEL}.pool": "build", f"{LABEL}.owner": owner.this_process()}
        life = str(_BUILD_MAX_MS)
        command = ("/.sbx/init", life, life, "/")
        container = await self._engine.create(
            ContainerSpec(self._build_host.image, self._build_host.kit, labels, command)
        )
        try:
            await self._engine.start(container)
            async with self.phase(container, mode, hosts) as env:
                yield BuildPlace(f"container:{container}", env)
        finally:
            await asyncio.shield(self._engine.remove(container))

    @asynccontextmanager
    async def private(self, labels: Mapping[str, str]) -> AsyncGenerator[str]:
        """A network for one session, removed at the end.  Yields its name.  Raises EngineError."""
        name = f"longshore-{uuid.uuid4().hex[:16]}"
        await self._create_private(name, labels)
        try:
            yield name
        finally:
            await asyncio.shield(self._remove(name))

    async def sweep(self) -> int:
        """Remove the private networks whose owners are proved dead and whose containers have ended.  How many."""
        filters = {"label": [f"{LABEL}.owner"]}

        async def call() -> list[tuple[str, str]]:
            listed = await self._engine.docker.networks.list(filters=filters)
            return [(each["Name"], each["Labels"][f"{LABEL}.owner"]) for each in listed]

        dead = [name for name, who in await retried("list the networks", call, _RETRIED) if owner.proved_dead(who)]
        return sum([await self._remove(name, wait_s=0.0) for name in dead])

    def _need_gate(self) -> Gate:
        if self._gate is None:
            raise UserError("this task wants network `proxy`, and no gate is open here: open a sandbox.gate.Gate first")
        return self._gate

    async def _create_private(self, name: str, labels: Mapping[str, str]) -> None:
        """On a subnet of our own range: an engine's own ranges end after some thirty networks."""
        first = random.randrange(_SUBNETS)
        for attempt in range(_TRIES):
            at = _FIRST_SUBNET + (first + attempt) % _SUBNETS * _SUBNET_ADDRESSES
            subnet = ".".join(str(at >> shift & 255) for shift in (24, 16, 8, 0)) + "/28"
            body = {
                "Name": name,
                "CheckDuplicate": True,
                "Driver": "bridge",
                "Internal": True,
                "Labels": {f"{LABEL}.owner": owner.this_process(), **labels},
                "Options": {"com.docker.network.bridge.inhibit_ipv4": "true"},  # this machine has no address on it
                "IPAM": {"Config": [{"Subnet": subnet}]},
            }
            try:
                return await self._create(body)
            except EngineError as error:
                if "overlap" not in str(error) or attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    async def _share(self) -> None:
        options = {"com.docker.network.bridge.enable_icc": "false"}  # no sandbox reaches another
        try:
            await self._create({"Name": SHARED, "CheckDuplicate": True, "Driver": "bridge", "Options": options})
        except EngineError as error:
            if "already exists" not in str(error):
                raise

    async def _create(self, body: dict[str, Any]) -> None:
        async def call() -> None:
            await self._engine.docker.networks.create(body)

        await retried(f"create the network {body['Name']}", call, frozenset(), idempotent=False)

    async def _leave(self, container: str) -> None:
        async def call() -> None:
            network = await self._engine.docker.networks.get(SHARED)
            await network.disconnect({"Container": container, "Force": True})

        await retried(f"take container {container[:12]} off the network", call, _RETRIED)

    async def _remove(self, name: str, wait_s: float = _TEARDOWN_S) -> bool:
        """Until it is gone: the engine refuses while a container that has ended is still being removed."""
        give_up = time.monotonic() + wait_s
        while True:
            try:
                async with asyncio.timeout(_TEARDOWN_S):
                    network = await self._engine.docker.networks.get(name)
                    await network.delete()
            except aiodocker.DockerError as error:
                if error.status == 404:
                    return True
                if time.monotonic() >= give_up:
                    if error.status == 403 and not wait_s:
                        return False
                    raise EngineError(f"could not remove the network {name}: {error}", error.status) from error
            except (OSError, TimeoutError) as error:
                raise EngineError(f"could not remove the network {name}: {error}") from error
            else:
                return True
            await asyncio.sleep(_LOOK_AGAIN_S)
