"""All that a run has on machines other than the driver's, so that its actors work there as they do here.

For each such machine: an outpost, whose courier brings what is written there; and copies of weights, of which the run's
model is the first.  The source of weights is on the driver's.  A machine that joins later is settled in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from actors.engines.settings import WeightTransferMode
from actors.runtime.remote import Remote
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings
from actors.weight_transport.source import RemoteWeightSource, WeightSource
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode, NodeRole
from launch.hosts.file_sync import FileSync
from launch.hosts.node_agent import LogSync, NodeAgent, NodeAgentSettings
from launch.hosts.placement import actor_run_dir, first_node_by_address
from launch.processes.process_reaper import host_token
from launch.run_records.run_directory import RunDirectory
from protocol.errors import InfraError, LongshoreError
from protocol.events import EventLog
from protocol.processes.task_groups import task_group

P = ParamSpec("P")
T = TypeVar("T")

_END_S = 15.0


class ActorSpawner(Protocol):
    """Starts an actor on a node, by its name in the run."""

    def __call__(
        self, node: ClusterNode, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote[T]: ...


@dataclass(frozen=True, slots=True)
class RemoteHost:
    node: ClusterNode
    """On which what the machine has once is."""
    log_sync: LogSync
    copies: Remote[HostWeightCache]
    model_folder: Path
    """The run's model folder there."""


def weight_cache_settings(config: RunConfig, directory: RunDirectory, node: ClusterNode) -> HostWeightCacheSettings:
    """Settings of the weight cache on the machine of ``node``."""
    folder = actor_run_dir(config, directory, node)
    return HostWeightCacheSettings(
        name=f"copies-{node.name.removeprefix('node-')}",
        run_dir=folder,
        node=node.name,
        folder=folder / "copies" / node.name,
        broadcast=config.engine.weight_transfer is WeightTransferMode.BROADCAST,
    )


class RemoteHosts:
    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        events: EventLog,
        *,
        model: Path,
        spawn_on: ActorSpawner,
        token: str,
        settled_s: float,
    ) -> None:
        """``model`` is the run's model folder here, ``token`` marks the run's processes on this machine, and no episode
        takes longer than ``settled_s``."""
        self._config, self._directory, self._model, self._events = config, directory, model, events
        self._spawn_on, self._token, self._settled_s = spawn_on, token, settled_s
        self._source: Remote[WeightSource] | None = None
        self.hosts: dict[str, RemoteHost] = {}
        """By address."""
        self.copies: dict[str, Remote[HostWeightCache]] = {}
        """Node → the copies that its machine's engines read."""
        self._broadcast_nodes: set[str] = set()
        """Those of these nodes that every version is broadcast to, where that is its way."""

    async def prepare_nodes(self, nodes: Sequence[ClusterNode], copy_homes: Mapping[str, ClusterNode]) -> None:
        """Bring to the machines of ``nodes`` what they lack.  ``copy_homes``: of each engine that reads copies, the
        node that keeps them.  The first node is the driver's.  Raises InfraError."""
        homes = {home.name: home for home in copy_homes.values()}
        fresh = [home for at, home in first_node_by_address(nodes).items() if home.remote and at not in self.hosts]
        if not homes and not fresh:
            return
        if self._source is None:
            self._broadcast_nodes = set(homes)
            self._source = self._spawn_on(nodes[0], "weights", WeightSource, len(homes), nodes[0].address)
        for home in (*homes.values(), *fresh):
            if home.name not in self.copies:
                told = weight_cache_settings(self._config, self._directory, home)
                self.copies[home.name] = self._spawn_on(
                    home, told.name, HostWeightCache, told, RemoteWeightSource(self._source)
                )
        worked_on = {node.address for node in nodes if NodeRole.WORKER in node.roles}
        async with task_group() as group:
            for home in fresh:
                group.create_task(
                    self._open_host(home, sweeps=self._config.sandbox.uses_worker_pools and home.address in worked_on)
                )

    async def _open_host(self, home: ClusterNode, *, sweeps: bool) -> None:
        config, copies = self._config, self.copies[home.name]
        post = self._spawn_on(
            home,
            f"node-agent-{home.name.removeprefix('node-')}",
            NodeAgent,
            NodeAgentSettings(
                folder=actor_run_dir(config, self._directory, home),
                run_id=self._directory.run_id,
                token=host_token(self._token, home.address),
                has_sandboxes=sweeps,
                settled_s=self._settled_s,
            ),
        )
        model = await copies.call(HostWeightCache.fetch_model, str(self._model))
        courier = LogSync(post, FileSync(self._directory.path), self._events)
        self.hosts[home.address] = RemoteHost(home, courier, copies, Path(model))
        self._events.emit("host.ready", name=home.name, address=home.address)

    def model_folder(self, node: ClusterNode) -> Path:
        """The run's model folder, as ``node`` has it.  Raises InfraError."""
        return self.host_of(node).model_folder if node.remote else self._model

    def host_of(self, node: ClusterNode) -> RemoteHost:
        """Of a remote ``node``.  Raises InfraError where the node of it that had what it has once is gone."""
        if (machine := self.hosts.get(node.address)) is None:
            raise InfraError(
                f"what the run had on the machine of {node.name} ({node.address}) is gone with another node"
            )
        return machine

    async def exclude_from_broadcast(self, node: ClusterNode) -> None:
        """It is gone: no broadcast of weights waits for it any more."""
        if self._source is not None and node.name in self._broadcast_nodes:
            self._broadcast_nodes.remove(node.name)
            await self._source.call(WeightSource.set_host_count, len(self._broadcast_nodes))

    def remove_node(self, node: ClusterNode) -> None:
        """It is gone: what was on it is asked no more."""
        self.copies.pop(node.name, None)
        machine = self.hosts.get(node.address)
        if machine is not None and machine.node.ray_id == node.ray_id:
            del self.hosts[node.address]

    @property
    def actors(self) -> tuple[Remote[Any], ...]:
        source = (self._source,) if self._source is not None else ()
        return (*source, *self.copies.values(), *(each.log_sync.agent for each in self.hosts.values()))

    async def close(self, sweep_s: float | None) -> None:
        """Once no other actor writes: bring the rest and leave nothing there.  ``sweep_s``: workers have died, and
        Docker engines may be busy for so long with what they had asked for."""
        async with asyncio.TaskGroup() as group:
            for machine in self.hosts.values():
                group.create_task(self._close(machine, sweep_s))

    async def _close(self, machine: RemoteHost, sweep_s: float | None) -> None:
        await machine.log_sync.finish()
        post, limit_s = machine.log_sync.agent, (sweep_s or 0.0) + _END_S
        try:
            async with asyncio.timeout(limit_s):
                if sweep_s is not None:
                    await post.call(NodeAgent.sweep_containers, sweep_s)
                await post.call(NodeAgent.close)
        except (LongshoreError, TimeoutError) as error:
            why = str(error) or f"no answer within {limit_s:g} s"
            self._events.emit("stop.failed", why=f"{post.name}: {why}")
