"""The engines of a run, and those of a judge of its own: their start, and their combined statistics."""

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
from launch.actor_group.specs.judge_spec import judge_engine_spec, judge_weights
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.remote_hosts import RemoteHosts
from launch.hosts.slot_reservation import LEARNER_ROLE
from launch.run_records.run_directory import RunDirectory
from launch.weight_sync.transport import WeightTransport
from protocol.errors import InfraError, UserError
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
        self._engine_class, self._events = engine_class, events
        self._sampled, self._judged = SampledTokenCounter(), SampledTokenCounter()
        self.engines: tuple[Remote[Engine], ...] = ()
        self.judges: tuple[Remote[Engine], ...] = ()
        """Engines of the run's own judge, which serve its folder and never get other weights."""
        self._judge_weights: dict[str, WeightManifest] = {}
        self._started = False
        self.senders: tuple[Remote[WeightSender], ...] = ()
        """The actor that broadcasts weights into the servers, if weights are transferred that way."""
        self.transport = WeightTransport()

    def spawn_all(
        self,
        head: ClusterNode,
        homes: Mapping[str, ClusterNode],
        judges: Mapping[str, ClusterNode],
        copies: Mapping[str, ClusterNode],
    ) -> None:
        """Spawn the engines and the judge's on their nodes; those in ``copies`` read the weight cache of that node."""
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
        self.judges = tuple(self._spawn_judge(name, home) for name, home in judges.items())
        for name, home in copies.items():
            self.transport.copies[self._spawner.full_name(name)] = self._remote_hosts.copies[home.name]

    def _spawn_judge(self, name: str, node: ClusterNode) -> Remote[Engine]:
        folder = self._remote_hosts.judge_folder(node)
        if folder is None:
            raise InfraError(f"{node.name} has no copy of the judge's folder")
        spec = judge_engine_spec(self._config, self._directory, folder, name, node)
        judge = self.spawn_engine(name, spec, node)
        self._judge_weights[judge.name] = judge_weights(folder)
        return judge

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
            num_gpus=spec.reserved_gpus,
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
        """Start every server on ``manifest``, and the judge's on its own weights, all at once.  A failed start is
        repeated once; an engine whose node is lost is skipped."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._start_unless_lost(engine, manifest))
            for judge in self.judges:
                group.create_task(self._start_unless_lost(judge, self._judge_weights[judge.name]))
        self._started = True

    def judge_weights_to_start(self, judge: Remote[Engine]) -> WeightManifest | None:
        """Return the weights on which an engine of the judge starts again; None before :meth:`start` has ended."""
        return self._judge_weights[judge.name] if self._started else None

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
        engines = {short_actor_name(engine.name): engine for engine in (*self.engines, *self.judges)}
        if name not in engines:
            raise UserError(f"no engine is called {name}: write one of {', '.join(engines)}")
        return await engines[name].call(Engine.drain, self._config.engine.request_timeout_s)

    async def sampled_tokens(self) -> int:
        """Return the number of tokens that all engines have sampled so far."""
        return await self._sampled.count_tokens(self.engines)

    async def judge_tokens(self) -> int | None:
        """Return the number of tokens that the judge's engines have sampled so far; None without any."""
        return await self._judged.count_tokens(self.judges) if self._judge_weights else None

    async def loads(self) -> list[int]:
        """Return the number of requests that each engine has now."""
        return await query_engine_loads(self.engines)

    def remove_node(self, node: ClusterNode) -> list[str]:
        """Forget the engines on a lost node and return the names of the policy's."""
        lost = [engine for engine in self.engines if self._spawner.is_on(node, engine)]
        self.engines = tuple(engine for engine in self.engines if engine not in lost)
        judges = [judge for judge in self.judges if self._spawner.is_on(node, judge)]
        self.judges = tuple(judge for judge in self.judges if judge not in judges)
        if judges:
            names = ", ".join(short_actor_name(judge.name) for judge in judges)
            text = f"{names} is lost with {node.name}: votes asked of it fail until the run is resumed on other nodes"
            self._events.emit("alert.raised", name="judge_lost", text=text)
        return [engine.name for engine in lost]
