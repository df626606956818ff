"""The actors of a run: learner, buffer and scheduler on the head, engines spread over the nodes, and workers with a
sandbox pool each on the nodes that can run them.

All but the learner are restarted by Ray when their process dies; one that does not answer for
``run.unresponsive_timeout_s`` is killed first.  Buffer and scheduler restore their state from the journal;
:class:`NodeSupervisor` restarts the work of workers and the servers of engines.  An engine restarts a server that dies
alone.  The training loop restarts the learner from a checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.workers.rollout_worker import RolloutWorker
from launch.actor_group.actor_classes import ActorClasses
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.actor_stopper import stop_actors
from launch.actor_group.container_cleanup import container_settle_s, remove_orphaned_containers
from launch.actor_group.engine_group import EngineGroup
from launch.actor_group.evaluation_actors import EvaluationActors
from launch.actor_group.health_monitor import ACTOR_START_S, HealthMonitor
from launch.actor_group.learner_starter import LearnerStarter
from launch.actor_group.node_supervisor import NodeSupervisor
from launch.actor_group.specs.buffer_spec import buffer_spec
from launch.actor_group.specs.scheduler_spec import rollout_request_deadline_s, scheduler_spec
from launch.actor_group.specs.worker_spec import BufferAddress
from launch.actor_group.worker_group import WorkerGroup
from launch.config import RunConfig
from launch.hosts.cluster_context import LOCAL_CLUSTER, ClusterContext
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import (
    expected_workers,
    has_evaluation_engine,
    place_engines,
    place_evaluation_engine,
    place_judges,
    place_weight_copies,
    place_workers,
    share_docker_engine,
)
from launch.hosts.remote_hosts import RemoteHosts
from launch.hosts.slot_reservation import plan_slots, reserve_slots
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE
from launch.run_records.run_directory import RunDirectory
from launch.stall_diagnosis.evidence import gather_evidence
from launch.stall_diagnosis.report_file import write_stall_report
from launch.stall_diagnosis.wait_chain import describe_wait_chain
from learner.models.qwen import read_qwen_config
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.run_directory.actor_names import EVALUATION_ENGINE, EVALUATION_WORKER
from protocol.stream import RunKeys, make_run_keys
from protocol.usability import TrajectoryLimits
from protocol.weights import WeightManifest
from sandbox.tasks.task import Task


class ActorGroup:
    """Use ``async with group.running():``.  Inside it buffer, scheduler and workers run; learner and engines once they
    are started."""

    buffer: Remote[TrajectoryBuffer]
    scheduler: Remote[RolloutScheduler]
    engines: EngineGroup
    workers: WorkerGroup
    learners: LearnerStarter
    evaluation: EvaluationActors

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        nodes: Sequence[ClusterNode],
        events: EventLog,
        *,
        model_path: Path,
        tasks: Mapping[str, Task],
        training_ids: tuple[str, ...],
        classes: ActorClasses,
        cluster: ClusterContext = LOCAL_CLUSTER,
    ) -> None:
        self._config, self._directory, self._nodes, self._events = config, directory, nodes, events
        self._model_path, self._tasks, self._training_ids = model_path, tasks, training_ids
        self._classes, self._cluster = classes, cluster
        token = os.environ.get(RUN_TOKEN_VARIABLE, "")
        self._spawner = RunActorSpawner(config, directory, token)
        self._remote_hosts = RemoteHosts(
            config,
            directory,
            events,
            model=model_path,
            spawn_on=self._spawner.spawn,
            token=token,
            settled_s=rollout_request_deadline_s(config),
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Reserve the cluster's resources if others may use it too, start the actors, and stop them at the end."""
        config, nodes, head = self._config, self._nodes, self._nodes[0]
        engines, judges = place_engines(config, nodes), place_judges(config, nodes)
        workers, copies = place_workers(config, nodes), place_weight_copies(config, nodes)
        evaluation = (
            {EVALUATION_ENGINE: place_evaluation_engine(config, nodes)} if has_evaluation_engine(config) else {}
        )
        by_role = plan_slots(config, head, engines | evaluation, judges, workers) if self._cluster.is_joined else {}
        async with reserve_slots(f"{self._directory.run_id}/{self._directory.start_number}", by_role) as bundles:
            self._spawner.bundles = bundles
            await self._start(engines, judges, workers, copies)
            try:
                yield
            finally:
                await asyncio.shield(self._stop())

    async def _start(
        self,
        engines: Mapping[str, ClusterNode],
        judges: Mapping[str, ClusterNode],
        workers: Mapping[str, ClusterNode],
        copies: Mapping[str, ClusterNode],
    ) -> None:
        config, directory, nodes, events = self._config, self._directory, self._nodes, self._events
        spawner, remote_hosts, head = self._spawner, self._remote_hosts, self._nodes[0]
        # New keys at each start, so that processes left over from an earlier one are refused.
        guard = self._cluster.private_folder or make_run_keys((*expected_workers(config, nodes), EVALUATION_WORKER))
        vocabulary, most_replies = read_qwen_config(self._model_path).vocab_size, config.agent.max_turns
        limits = TrajectoryLimits(vocabulary, config.learner.sequence_tokens, most_segments=most_replies)
        spec = buffer_spec(config, directory, limits, head, guard)
        self.buffer = spawner.spawn(head, "buffer", self._classes.buffer, spec)
        address = BufferAddress(await self._wait_buffer_started(), guard if isinstance(guard, RunKeys) else None)
        await remote_hosts.prepare_nodes(nodes, copies)
        self.scheduler = spawner.spawn(
            head,
            "scheduler",
            RolloutScheduler,
            scheduler_spec(config, directory, head, self._training_ids),
            self.buffer,
        )
        self.learners = LearnerStarter(
            config,
            directory,
            head,
            model_path=self._model_path,
            spawner=spawner,
            learner_class=self._classes.learner,
            events=events,
        )
        self.engines = EngineGroup(
            config,
            directory,
            spawner=spawner,
            remote_hosts=remote_hosts,
            engine_class=self._classes.engine,
            events=events,
        )
        self.engines.spawn_all(head, engines, judges, copies)
        self.workers = WorkerGroup(
            config,
            directory,
            spawner=spawner,
            remote_hosts=remote_hosts,
            episode_runner=self._classes.episode_runner,
            scheduler=self.scheduler,
            buffer=address,
            share=share_docker_engine(config, nodes),
        )
        self.workers.spawn_all(workers, self.engines)
        self._health_monitor = HealthMonitor(
            events,
            config.run.unresponsive_timeout_s,
            self.engines.transport,
            node_of=spawner.node_of,
            logs_of=spawner.logs_of,
        )
        self.evaluation = EvaluationActors(
            config,
            directory,
            nodes,
            spawner=spawner,
            engines=self.engines,
            workers=self.workers,
            remote_hosts=remote_hosts,
            health_monitor=self._health_monitor,
            events=events,
            tasks=self._tasks,
        )

    async def _wait_buffer_started(self) -> str:
        """Return the endpoint that trajectories are sent to.  Raises InfraError if the buffer does not start."""
        try:
            async with asyncio.timeout(ACTOR_START_S):
                return await self.buffer.call(TrajectoryBuffer.start)
        except TimeoutError as error:
            raise InfraError(
                f"the buffer did not start within {ACTOR_START_S:g} s: see {self._directory.logs}"
            ) from error

    async def supervise(
        self,
        newest_weights: Callable[[], WeightManifest | None],
        on_engine_lost: Callable[[str], Awaitable[None]],
    ) -> None:
        """Watch all actors and follow the cluster's nodes, until cancelled (:meth:`NodeSupervisor.supervise`)."""
        supervisor = NodeSupervisor(
            self._config,
            self._nodes,
            cluster=self._cluster,
            spawner=self._spawner,
            scheduler=self.scheduler,
            engines=self.engines,
            workers=self.workers,
            evaluation=self.evaluation,
            remote_hosts=self._remote_hosts,
            health_monitor=self._health_monitor,
            events=self._events,
            tasks=self._tasks,
            on_engine_lost=on_engine_lost,
        )
        await supervisor.supervise(self._long_lived, newest_weights)

    @property
    def _long_lived(self) -> tuple[Remote[Any], ...]:
        """All actors but the learner's and an evaluation's."""
        group = (*self.engines.engines, *self.engines.judges, *self.engines.senders, *self.workers.workers)
        return (self.buffer, self.scheduler, *group, *self._remote_hosts.actors)

    async def write_stall_report(self, token: str) -> tuple[str, str]:
        """Write the stacks of every process and task to a file.  Return which component waits for which, and the
        file's path."""
        logs = self._directory.logs
        evidence = await gather_evidence(
            (*self._long_lived, *self.evaluation.remotes, *self.learners.newest.ranks),
            sorted(logs.glob("*.stacks")),
            token,
        )
        line = describe_wait_chain(evidence)
        return line, str(await asyncio.to_thread(write_stall_report, logs, line, evidence))

    async def _stop(self) -> None:
        """Stop the workers (with their containers), then the engines, then the buffer.  Ray ends what does not
        answer."""
        for worker in await stop_actors(self.workers.workers, RolloutWorker.stop, self._events):
            self._spawner.kill(worker)
            self._health_monitor.last_worker_death = time.monotonic()
        await stop_actors((*self.engines.engines, *self.engines.judges), Engine.stop, self._events)
        await stop_actors([self.buffer], TrajectoryBuffer.stop, self._events)
        settle_s = container_settle_s(self._health_monitor.last_worker_death, self._config)
        async with asyncio.TaskGroup() as group:
            if settle_s is not None and self._cluster.has_docker:
                group.create_task(remove_orphaned_containers(self._directory.run_id, settle_s, self._events))
            group.create_task(self._remote_hosts.close(settle_s))
