"""Prepares machines other than the driver's, so that a run's actors work there as on the driver's.

Each such machine gets a folder for the run that no other account can change, a node agent, whose files are synced to
the driver, and a weight cache, which fetches the run's model first.  The source of the weights is on the driver's
machine.  A machine that joins later is prepared likewise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from actors.engines.settings import WeightTransferMode
from actors.runtime.remote import ActorOptions, Remote, kill_actor, spawn_actor
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings
from actors.weight_transport.source import RemoteWeightSource, WeightSource
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode, NodeRole
from launch.hosts.file_sync import FileSync
from launch.hosts.node_agent import LogSync, NodeAgent, NodeAgentSettings, ScratchFolderMaker
from launch.hosts.placement import actor_run_dir, first_node_by_address
from launch.processes.process_reaper import host_token
from launch.run_records.run_directory import RunDirectory
from protocol.errors import InfraError, LongshoreError
from protocol.events import EventLog
from protocol.processes.task_groups import task_group

P = ParamSpec("P")
T = TypeVar("T")

_CLOSE_S = 15.0


class ActorSpawner(Protocol):
    """Starts an actor on a node, by its name in the run."""

    def __call__(
        self, node: ClusterNode, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote[T]: ...


@dataclass(frozen=True, slots=True)
class RemoteHost:
    node: ClusterNode
    """The node that the machine's agent and weight cache run on."""
    log_sync: LogSync
    copies: Remote[HostWeightCache]
    model_folder: Path
    """The run's model folder there."""
    judge_folder: Path | None = None
    """The folder of the run's own judge there; None without one."""


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


async def _make_scratch_folder(node: ClusterNode, folder: Path) -> None:
    """Make the run's folder on the machine of ``node``.  Raises InfraError."""
    name = f"scratch-folder/{node.ray_id}/{time.time_ns()}"
    maker = spawn_actor(ScratchFolderMaker, ActorOptions(name=name, node_id=node.ray_id))
    try:
        await maker.call(ScratchFolderMaker.make, folder)
    except InfraError as error:
        raise InfraError(f"{node.name} ({node.address}): {error}") from error
    finally:
        kill_actor(maker)


class RemoteHosts:
    """Prepares every machine other than the driver's: node agent, file sync and weight cache."""

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
        """``model`` is the run's model folder on this machine, ``token`` marks the run's processes here, and no episode
        takes longer than ``settled_s``."""
        self._config, self._directory, self._model, self._events = config, directory, model, events
        self._spawn_on, self._token, self._settled_s = spawn_on, token, settled_s
        self._source: Remote[WeightSource] | None = None
        self.hosts: dict[str, RemoteHost] = {}
        """Address → host."""
        self.copies: dict[str, Remote[HostWeightCache]] = {}
        """Node → the weight cache that its machine's engines read."""
        self._broadcast_nodes: set[str] = set()
        """Nodes that every version is broadcast to, if weights are transferred that way."""

    async def prepare_nodes(self, nodes: Sequence[ClusterNode], copy_homes: Mapping[str, ClusterNode]) -> None:
        """Prepare those machines of ``nodes`` that are not prepared yet; the first node is the driver's.
        ``copy_homes`` maps each engine that reads a weight cache to the node of the cache.  Raises InfraError."""
        homes = {home.name: home for home in copy_homes.values()}
        new = [
            home for address, home in first_node_by_address(nodes).items() if home.remote and address not in self.hosts
        ]
        if not homes and not new:
            return
        async with task_group() as group:
            for home in new:
                group.create_task(_make_scratch_folder(home, actor_run_dir(self._config, self._directory, home)))
        if self._source is None:
            self._broadcast_nodes = set(homes)
            self._source = self._spawn_on(nodes[0], "weights", WeightSource, len(homes), nodes[0].address)
        for home in (*homes.values(), *new):
            if home.name not in self.copies:
                settings = weight_cache_settings(self._config, self._directory, home)
                self.copies[home.name] = self._spawn_on(
                    home, settings.name, HostWeightCache, settings, RemoteWeightSource(self._source)
                )
        worker_addresses = {node.address for node in nodes if NodeRole.WORKER in node.roles}
        async with task_group() as group:
            for home in new:
                group.create_task(
                    self._open_host(
                        home, has_sandboxes=self._config.sandbox.uses_worker_pools and home.address in worker_addresses
                    )
                )

    async def _open_host(self, home: ClusterNode, *, has_sandboxes: bool) -> None:
        config, copies = self._config, self.copies[home.name]
        agent = self._spawn_on(
            home,
            f"node-agent-{home.name.removeprefix('node-')}",
            NodeAgent,
            NodeAgentSettings(
                folder=actor_run_dir(config, self._directory, home),
                run_id=self._directory.run_id,
                token=host_token(self._token, home.address),
                has_sandboxes=has_sandboxes,
                settled_s=self._settled_s,
            ),
        )
        model = await copies.call(HostWeightCache.fetch_model, str(self._model))
        judge = self._config.judge.own_model
        copied = await copies.call(HostWeightCache.fetch_model, str(judge), "judge") if judge is not None else None
        log_sync = LogSync(agent, FileSync(self._directory.path), self._events)
        self.hosts[home.address] = RemoteHost(home, log_sync, copies, Path(model), Path(copied) if copied else None)
        self._events.emit("host.ready", name=home.name, address=home.address)

    def model_folder(self, node: ClusterNode) -> Path:
        """Return the run's model folder on the machine of ``node``.  Raises InfraError."""
        return self.host_of(node).model_folder if node.remote else self._model

    def judge_folder(self, node: ClusterNode) -> Path | None:
        """Return the folder of the run's own judge on the machine of ``node``; None without one.  Raises InfraError."""
        return self.host_of(node).judge_folder if node.remote else self._config.judge.own_model

    def host_of(self, node: ClusterNode) -> RemoteHost:
        """Return the host of a remote ``node``.  Raises InfraError if the node that its agent ran on is lost."""
        if (host := self.hosts.get(node.address)) is None:
            raise InfraError(
                f"the run's node agent on the machine of {node.name} ({node.address}) was lost with another node"
            )
        return host

    async def exclude_from_broadcast(self, node: ClusterNode) -> None:
        """Let no broadcast of weights wait for a lost node any more."""
        if self._source is not None and node.name in self._broadcast_nodes:
            self._broadcast_nodes.remove(node.name)
            await self._source.call(WeightSource.set_host_count, len(self._broadcast_nodes))

    def remove_node(self, node: ClusterNode) -> None:
        """Forget the weight cache and the host of a lost node."""
        self.copies.pop(node.name, None)
        host = self.hosts.get(node.address)
        if host is not None and host.node.ray_id == node.ray_id:
            del self.hosts[node.address]

    @property
    def actors(self) -> tuple[Remote[Any], ...]:
        source = (self._source,) if self._source is not None else ()
        return (*source, *self.copies.values(), *(host.log_sync.agent for host in self.hosts.values()))

    async def close(self, settle_s: float | None) -> None:
        """Copy the rest once no other actor writes, and clean up.  With ``settle_s``, workers have died, and Docker
        engines may still create their containers for that many seconds."""
        async with asyncio.TaskGroup() as group:
            for host in self.hosts.values():
                group.create_task(self._close(host, settle_s))

    async def _close(self, host: RemoteHost, settle_s: float | None) -> None:
        await host.log_sync.finish()
        agent, limit_s = host.log_sync.agent, (settle_s or 0.0) + _CLOSE_S
        try:
            async with asyncio.timeout(limit_s):
                if settle_s is not None:
                    await agent.call(NodeAgent.remove_orphaned_containers, settle_s)
                await agent.call(NodeAgent.close)
        except (LongshoreError, TimeoutError) as error:
            why = str(error) or f"no answer within {limit_s:g} s"
            self._events.emit("stop.failed", why=f"{agent.name}: {why}")
