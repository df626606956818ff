"""Supervises a run's actors node by node: watches them, adds workers on nodes that join, and drops lost nodes.

A lost node takes its actors with it: the scheduler reissues the requests of its workers at once, and nothing waits for
its engines.  A node that joins gets workers while the run has fewer nodes than it may have.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.actor_spawner import RunActorSpawner
from launch.actor_group.engine_group import EngineGroup
from launch.actor_group.evaluation_actors import EvaluationActors
from launch.actor_group.health_monitor import HealthMonitor
from launch.actor_group.worker_group import WorkerGroup
from launch.config import RunConfig
from launch.hosts.cluster_context import ClusterContext
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.membership import NodeMembership
from launch.hosts.membership_watch import watch_membership
from launch.hosts.node_checks import check_nodes, require_worker_role
from launch.hosts.placement import worker_names
from launch.hosts.remote_hosts import RemoteHosts
from protocol.errors import InfraError, LongshoreError, UserError
from protocol.events import EventLog
from protocol.processes.task_groups import task_group
from protocol.weights import WeightManifest
from sandbox.tasks.task import Task


class NodeSupervisor:
    """Follows the cluster's nodes: adds workers on new ones, and drops those that are lost."""

    def __init__(
        self,
        config: RunConfig,
        nodes: Sequence[ClusterNode],
        *,
        cluster: ClusterContext,
        spawner: RunActorSpawner,
        scheduler: Remote[RolloutScheduler],
        engines: EngineGroup,
        workers: WorkerGroup,
        evaluation: EvaluationActors,
        remote_hosts: RemoteHosts,
        health_monitor: HealthMonitor,
        events: EventLog,
        tasks: Mapping[str, Task],
        on_engine_lost: Callable[[str], Awaitable[None]],
    ) -> None:
        """``on_engine_lost`` is called with the name of each engine that is lost with its node."""
        self._config, self._nodes, self._cluster, self._spawner = config, nodes, cluster, spawner
        self._scheduler, self._engines, self._workers, self._evaluation = scheduler, engines, workers, evaluation
        self._remote_hosts, self._health_monitor, self._events = remote_hosts, health_monitor, events
        self._tasks, self._on_engine_lost = tasks, on_engine_lost
        self._tasks_of_node: dict[str, list[asyncio.Task[None]]] = defaultdict(list)

    async def supervise(
        self, actors: Sequence[Remote[Any]], newest_weights: Callable[[], WeightManifest | None]
    ) -> None:
        """Until cancelled: report dead processes, restart hung ones, keep workers running, start the engines that Ray
        had to restart on the newest weights, sync logs from other machines, and follow the nodes of the cluster.
        Raises :class:`~launch.hosts.membership_watch.ClusterLostError`."""
        async with task_group() as group:
            for actor in actors:
                self.run_on_node(group, actor, self._health_monitor.watch_liveness(actor))
            for host in self._remote_hosts.hosts.values():
                self.run_on_node(group, host.log_sync.agent, host.log_sync.run())
            for engine in self._engines.engines:
                self.run_on_node(group, engine, self._health_monitor.keep_engine_serving(engine, newest_weights))
            for judge in self._engines.judges:
                weights = partial(self._engines.judge_weights_to_start, judge)
                self.run_on_node(group, judge, self._health_monitor.keep_engine_serving(judge, weights))
            for worker in self._workers.workers:
                self.run_on_node(group, worker, self._health_monitor.keep_worker_running(worker, self._tasks))
            group.create_task(self._follow_nodes(group))

    def run_on_node(self, group: asyncio.TaskGroup, actor: Remote[Any], work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` until the actor's node is lost."""
        self._tasks_of_node[self._spawner.node_of(actor).name].append(group.create_task(work))

    async def _follow_nodes(self, group: asyncio.TaskGroup) -> None:
        membership = NodeMembership(self._nodes, max(len(self._nodes), self._config.cluster.max_nodes))
        async with aclosing(watch_membership(membership, self._cluster.own_processes)) as changes:
            async for change in changes:
                for why in change.refused:
                    self._events.emit("node.refused", why=why)
                for node in change.gone:
                    await self.remove_node(node)
                for node in change.joined:
                    self._tasks_of_node[node.name].append(group.create_task(self.add_node(group, membership, node)))

    async def remove_node(self, node: ClusterNode) -> None:
        """Drop a lost node and its actors.  Raises InfraError if no other node can do their work."""
        self._events.emit("node.down", name=node.name, address=node.address)
        self._spawner.lost_event(node).set()
        for task in self._tasks_of_node.pop(node.name, []):
            task.cancel()
        engines = (*self._engines.engines, *self._engines.judges)
        for actor in (*self._workers.workers, *engines, *self._evaluation.remotes):
            if self._spawner.is_on(node, actor):  # else Ray waits for the node to come back, and so do all callers
                self._spawner.kill(actor)
        self._workers.remove_node(node)
        lost_engines = self._engines.remove_node(node)
        self._remote_hosts.remove_node(node)
        if not self._workers.workers or not self._engines.engines:
            what = "workers" if self._engines.engines else "an engine"
            raise InfraError(f"{node.name} ({node.address}) is lost, and no other node has {what}: start one")
        for engine in lost_engines:
            await self._on_engine_lost(engine)
        for name in worker_names(self._config, node):
            await self._scheduler.call(RolloutScheduler.remove_worker, name)
        await self._remote_hosts.exclude_from_broadcast(node)

    async def add_node(self, group: asyncio.TaskGroup, membership: NodeMembership, node: ClusterNode) -> None:
        """Start workers on a node that has joined, if it meets their requirements."""
        try:
            node = await self.check_joining_node(node)
            await self._remote_hosts.prepare_nodes([self._nodes[0], node], {})
        except (LongshoreError, TimeoutError) as error:
            membership.refuse(node)
            self._remote_hosts.remove_node(node)
            why = f"{error} (it is checked again when its Ray is restarted)"
            self._events.emit("node.refused", name=node.name, address=node.address, why=why)
            return
        self._events.emit("node.up", name=node.name, address=node.address)
        host = self._remote_hosts.hosts.get(node.address)
        if host is not None and host.node.ray_id == node.ray_id:
            for actor in (host.copies, host.log_sync.agent):
                self.run_on_node(group, actor, self._health_monitor.watch_liveness(actor))
            self.run_on_node(group, host.log_sync.agent, host.log_sync.run())
        for name in worker_names(self._config, node):
            worker = self._workers.add_worker(name, node, self._engines)
            self.run_on_node(group, worker, self._health_monitor.watch_liveness(worker))
            self.run_on_node(group, worker, self._health_monitor.keep_worker_running(worker, self._tasks))

    async def check_joining_node(self, node: ClusterNode) -> ClusterNode:
        """Return the node with the roles that it can fill.  Raises UserError if it can run no workers."""
        keys, required = self._workers.buffer.keys, self._cluster.node_requirements
        if keys is not None and not keys.clients.keys() >= {*worker_names(self._config, node)}:
            raise UserError(
                "more nodes have joined than this start of the run has keys for: stop it (longshore ctl RUN stop) "
                "and go on with longshore cluster --resume"
            )
        return require_worker_role(node, {} if required is None else await check_nodes([node], required))
