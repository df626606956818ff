"""The engines of a run: their start on published weights, and their combined statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from actors.engines.interface import Engine
from actors.engines.messages import EngineStartError
from actors.engines.settings import EngineSpec, WeightTransferMode
from actors.runtime.remote import Remote, short_actor_name
from actors.runtime.remote_errors import RemoteError
from actors.weight_transport.sender import RemoteWeightSender, WeightSender
from launch.actor_group.actor_classes import EngineClass
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.engine_statistics import SampledTokenCounter, query_engine_loads
from launch.actor_group.specs.engine_spec import engine_spec
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import engine_gpus
from launch.hosts.remote_hosts import RemoteHosts
from launch.hosts.slot_reservation import LEARNER_ROLE
from launch.run_records.run_directory import RunDirectory
from launch.weight_sync.transport import WeightTransport
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.weights import WeightManifest

_START_ATTEMPTS = 2
LOSS_REPORT_S = 5.0
"""Longest time in seconds by which a failed call to an actor precedes the cluster's report that its node is lost."""


class EngineGroup:
    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        *,
        spawner: RunActorSpawner,
        remote_hosts: RemoteHosts,
        engine_class: EngineClass,
        events: EventLog,
    ) -> None:
        self._config, self._directory, self._spawner, self._remote_hosts = config, directory, spawner, remote_hosts
        self._engine_class, self._events, self._sampled = engine_class, events, SampledTokenCounter()
        self.engines: tuple[Remote[Engine], ...] = ()
        self.senders: tuple[Remote[WeightSender], ...] = ()
        """The actor that broadcasts weights into the servers, if weights are transferred that way."""
        self.transport = WeightTransport()

    def spawn_all(self, head: ClusterNode, homes: Mapping[str, ClusterNode], copies: Mapping[str, ClusterNode]) -> None:
        """Spawn the engines on their nodes; those in ``copies`` read the weight cache of that node."""
        sender = self._spawn_sender(head)
        self.engines = tuple(
            self.spawn_engine(
                name,
                engine_spec(self._config, self._directory, self._remote_hosts.model_folder(home), name, home),
                home,
                sender,
            )
            for name, home in homes.items()
        )
        for name, home in copies.items():
            self.transport.copies[self._spawner.full_name(name)] = self._remote_hosts.copies[home.name]

    def spawn_engine(
        self,
        name: str,
        spec: EngineSpec,
        node: ClusterNode,
        sender: RemoteWeightSender | None = None,
        *,
        slot: str = "",
    ) -> Remote[Engine]:
        """Spawn the actor of one engine, whose server is started later."""
        options = replace(
            self._spawner.options(node, name, slot=slot),
            num_gpus=engine_gpus(self._config),
            max_concurrency=spec.settings.max_concurrent_calls,
        )
        return self._spawner.spawn_with(options, self._engine_class, spec, sender)

    def _spawn_sender(self, head: ClusterNode) -> RemoteWeightSender | None:
        if self._config.engine.weight_transfer is not WeightTransferMode.DIRECT:
            return None
        device = self._config.engine.broadcast_device
        options = replace(self._spawner.options(head, "sender", slot=LEARNER_ROLE), num_gpus=int(device == "cuda"))
        sender = self._spawner.spawn_with(options, WeightSender, head.address, device)
        self.senders = (sender,)
        return RemoteWeightSender(sender)

    async def start(self, manifest: WeightManifest) -> None:
        """Start every server on ``manifest``, all at once.  A failed start is repeated once; an engine whose node is
        lost is skipped."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._start_unless_lost(engine, manifest))

    async def _start_unless_lost(self, engine: Remote[Engine], manifest: WeightManifest) -> None:
        try:
            await self.start_engine(engine, manifest)
        except RemoteError:
            lost = self._spawner.lost_event(self._spawner.node_of(engine))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOSS_REPORT_S):
                    await lost.wait()
            if not lost.is_set():
                raise

    async def start_engine(self, engine: Remote[Engine], manifest: WeightManifest) -> None:
        """Start one server on ``manifest``.  Raises EngineStartError if the second attempt fails too."""
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            try:
                await engine.call(Engine.start, await self.transport.ensure_local_copy(engine, manifest, None))
            except EngineStartError as error:
                if not attempts_left:
                    raise
                self._events.emit("engine.restart_failed", engine=engine.name, why=str(error))
            else:
                return

    async def drain(self, name: str) -> bool:
        """Call :meth:`~actors.engines.interface.Engine.drain`.  Raises UserError for an unknown name, InfraError."""
        engines = {short_actor_name(engine.name): engine for engine in self.engines}
        if name not in engines:
            raise UserError(f"no engine is called {name}: write one of {', '.join(engines)}")
        return await engines[name].call(Engine.drain, self._config.engine.request_timeout_s)

    async def sampled_tokens(self) -> int:
        """Return the number of tokens that all engines have sampled so far."""
        return await self._sampled.count_tokens(self.engines)

    async def loads(self) -> list[int]:
        """Return the number of requests that each engine has now."""
        return await query_engine_loads(self.engines)

    def remove_node(self, node: ClusterNode) -> list[str]:
        """Forget the engines on a lost node and return their names."""
        lost = [engine for engine in self.engines if self._spawner.is_on(node, engine)]
        self.engines = tuple(engine for engine in self.engines if engine not in lost)
        return [engine.name for engine in lost]
