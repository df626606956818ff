"""The rollout workers of a run, and calls to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.episode_runner import EpisodeRunner
from actors.workers.rollout_worker import RolloutWorker
from actors.workers.settings import WorkerSpec
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.engine_group import EngineGroup
from launch.actor_group.specs.worker_spec import BufferAddress, worker_spec
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import WorkerShare
from launch.hosts.remote_hosts import RemoteHosts
from launch.run_records.run_directory import RunDirectory


class WorkerGroup:
    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        *,
        spawner: RunActorSpawner,
        remote_hosts: RemoteHosts,
        episode_runner: type[EpisodeRunner],
        scheduler: Remote[RolloutScheduler],
        buffer: BufferAddress,
        share: WorkerShare,
    ) -> None:
        self._config, self._directory, self._spawner, self._remote_hosts = config, directory, spawner, remote_hosts
        self._episode_runner, self._scheduler, self.buffer, self._share = episode_runner, scheduler, buffer, share
        self.workers: tuple[Remote[RolloutWorker], ...] = ()

    def spawn_all(self, homes: Mapping[str, ClusterNode], engines: EngineGroup) -> None:
        """Spawn the workers on their nodes."""
        for name, node in homes.items():
            self.add_worker(name, node, engines)

    def add_worker(self, name: str, node: ClusterNode, engines: EngineGroup) -> Remote[RolloutWorker]:
        """Spawn a worker that samples from the engines, and asks the judge's if there are any."""
        hosts = self._remote_hosts
        spec = worker_spec(
            self._config,
            self._directory,
            hosts.model_folder(node),
            name,
            node,
            buffer=self.buffer,
            share=self._share,
            judge_folder=hosts.judge_folder(node),
        )
        worker = self.spawn_worker(name, node, spec, engines.engines, engines.judges)
        self.workers = (*self.workers, worker)
        return worker

    def spawn_worker(
        self,
        name: str,
        node: ClusterNode,
        spec: WorkerSpec,
        engines: tuple[Remote[Engine], ...],
        judges: tuple[Remote[Engine], ...] = (),
    ) -> Remote[RolloutWorker]:
        """Spawn a worker that does not belong to the group.  Its calls are not repeated by Ray: the driver restarts
        its work and reports why."""
        options = replace(self._spawner.options(node, name), max_task_retries=0)
        return self._spawner.spawn_with(
            options, RolloutWorker, spec, self._scheduler, engines, self._episode_runner, judges
        )

    async def cancel_training(self) -> None:
        """Cancel the running training episodes; a dead worker has none."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(self._cancel_training(worker))

    async def _cancel_training(self, worker: Remote[RolloutWorker]) -> None:
        with suppress(RemoteError):
            await worker.call(RolloutWorker.cancel_training)

    async def cancel_trajectories(self, trajectories: Sequence[str]) -> None:
        """Cancel the running episodes of these trajectories, on whichever worker they run."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(self._cancel_attempts(worker, trajectories))

    async def _cancel_attempts(self, worker: Remote[RolloutWorker], trajectories: Sequence[str]) -> None:
        with suppress(RemoteError):
            await worker.call(RolloutWorker.cancel_attempts, trajectories)

    def remove_node(self, node: ClusterNode) -> None:
        """Forget the workers on a lost node."""
        self.workers = tuple(worker for worker in self.workers if not self._spawner.is_on(node, worker))
