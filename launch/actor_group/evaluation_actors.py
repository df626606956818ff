"""The actors of an online evaluation: a worker, and an engine unless training's engines serve the evaluation.

They are started for one evaluation and stopped after it, under new names, because Ray may still know the previous ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.workers.rollout_worker import RolloutWorker
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.actor_stopper import stop_actors
from launch.actor_group.engine_group import EngineGroup
from launch.actor_group.health_monitor import ACTOR_START_S, HealthMonitor
from launch.actor_group.specs.engine_spec import engine_spec
from launch.actor_group.specs.worker_spec import evaluation_worker_spec
from launch.actor_group.worker_group import WorkerGroup
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import place_evaluation_engine
from launch.hosts.remote_hosts import RemoteHosts
from launch.processes.background_tasks import background_services
from launch.run_records.run_directory import RunDirectory
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.run_directory.actor_names import EVALUATION_ENGINE, EVALUATION_WORKER
from protocol.weights import WeightManifest
from sandbox.tasks.task import Task


class EvaluationActors:
    """Starts and stops the worker and the engine of an online evaluation."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        nodes: Sequence[ClusterNode],
        *,
        spawner: RunActorSpawner,
        engines: EngineGroup,
        workers: WorkerGroup,
        remote_hosts: RemoteHosts,
        health_monitor: HealthMonitor,
        events: EventLog,
        tasks: Mapping[str, Task],
    ) -> None:
        self._config, self._directory, self._nodes, self._spawner = config, directory, nodes, spawner
        self._engines, self._workers, self._remote_hosts = engines, workers, remote_hosts
        self._health_monitor, self._events, self._tasks = health_monitor, events, tasks
        self._count = 0
        self.remotes: tuple[Remote[Any], ...] = ()
        """The actors of the evaluation that runs now."""

    @asynccontextmanager
    async def running(self, manifest: WeightManifest) -> AsyncGenerator[None]:
        """Run a worker, and an engine that serves ``manifest`` and nothing else, until the context ends; on a colocated
        device the worker uses the existing engines.  Raises InfraError if they do not start, UserError if there is no
        capacity for them."""
        worker, own_engines = self._spawn()
        self.remotes = (worker, *own_engines)
        try:
            async with background_services(
                *(self._fail_when_node_lost(self._spawner.node_of(actor)) for actor in self.remotes)
            ):
                await self._start_engines(own_engines, manifest)
                async with background_services(self._health_monitor.keep_worker_running(worker, self._tasks)):
                    try:
                        async with background_services(  # not while they stop: a supervised engine is started again
                            *(self._health_monitor.watch_liveness(actor) for actor in (worker, *own_engines)),
                            *(self._health_monitor.keep_engine_serving(each, lambda: manifest) for each in own_engines),
                        ):
                            yield
                    finally:
                        await asyncio.shield(self._stop(worker, own_engines))
        finally:
            self.remotes = ()
            for actor in (worker, *own_engines):
                self._engines.transport.remove_engine(actor.name)
                self._spawner.kill(actor)

    def require_capacity(self) -> None:
        """Raise UserError if no sandbox or no GPU is free for an online evaluation."""
        config = self._config
        if not config.online_evaluation_slots:
            raise UserError(
                f"sandbox.capacity_per_node = {config.sandbox.capacity_per_node} leaves no sandbox beside training's: "
                "raise it, --set sandbox.capacity_per_node=N with --resume"
            )
        if config.colocated:
            return
        home = place_evaluation_engine(config, self._nodes)
        if self._spawner.lost_event(home).is_set():
            raise UserError(
                f"{home.name} ({home.address}), the node of the evaluation engine, is lost: use another by --resume"
            )

    def _spawn(self) -> tuple[Remote[RolloutWorker], tuple[Remote[Engine], ...]]:
        """Return the worker, and its own engine if it has one."""
        self.require_capacity()
        self._count += 1
        own_engines = () if self._config.colocated else (self._spawn_engine(),)
        node = self._spawner.node_of(self._workers.workers[0])
        spec = evaluation_worker_spec(
            self._config,
            self._directory,
            self._remote_hosts.model_folder(node),
            node,
            buffer=self._workers.buffer,
        )
        name = f"{EVALUATION_WORKER}-{self._count}"
        return self._workers.spawn_worker(name, node, spec, own_engines or self._engines.engines), own_engines

    def _spawn_engine(self) -> Remote[Engine]:
        """Spawn an engine that serves one version from its start to its end."""
        node, name = place_evaluation_engine(self._config, self._nodes), f"{EVALUATION_ENGINE}-{self._count}"
        model_path = self._remote_hosts.model_folder(node)
        spec = replace(
            engine_spec(self._config, self._directory, model_path, EVALUATION_ENGINE, node), offloads_memory=False
        )
        engine = self._engines.spawn_engine(name, spec, node, slot=EVALUATION_ENGINE)
        if node.remote:
            self._engines.transport.add_pinned_engine(engine.name, self._remote_hosts.host_of(node).copies)
        return engine

    async def _start_engines(self, engines: Sequence[Remote[Engine]], manifest: WeightManifest) -> None:
        """Start the evaluation's own engine, if it has one.  Raises InfraError, also if its process does not
        start in time: without a reserved GPU it waits until other users of the cluster free one."""
        for engine in engines:
            try:
                async with asyncio.timeout(ACTOR_START_S):
                    await engine.pid()
            except TimeoutError as error:
                what = f"the engine for evaluations has no process after {ACTOR_START_S:g} s"
                raise InfraError(f"{what}: `ray status` shows who uses the resources it needs") from error
            async with background_services(self._health_monitor.watch_liveness(engine)):
                await self._engines.start_engine(engine, manifest)

    async def _fail_when_node_lost(self, node: ClusterNode) -> None:
        """Raise InfraError once ``node`` is lost."""
        await self._spawner.lost_event(node).wait()
        raise InfraError(f"{node.name} ({node.address}), on which the evaluation ran, is lost")

    async def _stop(self, worker: Remote[RolloutWorker], engines: Sequence[Remote[Engine]]) -> None:
        if await stop_actors([worker], RolloutWorker.stop, self._events):
            self._health_monitor.last_worker_death = time.monotonic()
        await stop_actors(engines, Engine.stop, self._events)
