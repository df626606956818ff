"""The actors of a run and where they live: learner, buffer and scheduler on the head, a worker with its sandbox pool on
each node that may have one, as many engines as the recipe says, spread; and what other machines than the driver's need
beside (:mod:`launch.hosts.remote_hosts`).

All but the learner are restarted by Ray when their process dies; one that has not answered for
``run.unresponsive_timeout_s`` is killed for it.  Evaluations beside training have a worker and an engine that come
and go with them (:meth:`ActorGroup.evaluation_actors`).  Buffer and scheduler find their state in the journal;
workers are told to run again, and an engine to start on the newest weights, by :meth:`ActorGroup.supervise`.  A
server that dies alone is restarted by its engine.  The learner is started again by the training loop, from a
checkpoint.

A node that is gone takes its actors with it: what its workers were at is issued again at once, and nobody waits for
its engines.  One that joins gets workers, as long as there are fewer nodes than the run may have.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.engines.interface import Engine
from actors.engines.messages import EngineStartError
from actors.engines.settings import EngineSpec, WeightTransferMode
from actors.runtime.placement_groups import PlacementBundle
from actors.runtime.remote import ActorOptions, Remote, kill_actor, short_actor_name, spawn_actor
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from actors.weight_transport.sender import RemoteWeightSender, WeightSender
from actors.workers.rollout_worker import RolloutWorker
from launch.actor_group.actor_classes import DEFAULT_ACTOR_CLASSES, ActorClasses
from launch.actor_group.actor_settings import (
    ACTOR_STOP_S,
    buffer_spec,
    engine_spec,
    evaluation_engine_spec,
    evaluation_worker_settings,
    rollout_request_deadline_s,
    scheduler_settings,
    worker_settings,
)
from launch.actor_group.engine_statistics import SampledTokenCounter, query_engine_loads
from launch.actor_group.health_monitor import ACTOR_START_S, HealthMonitor
from launch.actor_group.learner_group import LearnerGroup, learner_spec, spawn_learner_group
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.membership import NodeMembership
from launch.hosts.membership_watch import watch_membership
from launch.hosts.node_checks import FindingsByNode, check_nodes, require_worker_role
from launch.hosts.node_requirements import NodeRequirements
from launch.hosts.placement import (
    actor_run_dir,
    engine_gpus,
    expected_workers,
    has_evaluation_engine,
    place_engines,
    place_evaluation_engine,
    place_weight_copies,
    place_workers,
    share_docker_engine,
    worker_names,
)
from launch.hosts.remote_hosts import RemoteHosts
from launch.hosts.slot_reservation import LEARNER_ROLE, plan_slots, reserve_slots
from launch.processes.background_tasks import background_services
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE, host_token
from launch.run_records.run_directory import RunDirectory
from launch.stall_diagnosis.evidence import gather_evidence
from launch.stall_diagnosis.report_file import write_stall_report
from launch.stall_diagnosis.wait_chain import describe_wait_chain
from launch.weight_sync.transport import WeightTransport
from learner.rank import LearnerRank
from protocol.errors import InfraError, LongshoreError, UserError
from protocol.events import EventLog
from protocol.processes.loopback import find_free_port, is_loopback
from protocol.processes.task_groups import task_group
from protocol.run_directory.actor_names import EVALUATION_ENGINE, EVALUATION_WORKER
from protocol.stream import RunKeys, make_run_keys
from protocol.weights import WeightManifest
from sandbox.pool.sweep import SETTLE_S, sweep_run
from sandbox.tasks.task import Task

P = ParamSpec("P")
T = TypeVar("T")

_STARTS = 2
"""Times that a learner or a server may be started before its first word."""
_NEWS_S = 5.0
"""Whoever asks an actor hears of the end of its node so much earlier than we do, at most."""


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What a run's nodes are part of."""

    own_processes: tuple[int, ...] = ()
    """Ray's on the head, where it was started here."""
    node_requirements: NodeRequirements | None = None
    """Of a node that joins; None where none does, for the nodes were started here."""
    has_docker: bool = True
    """The driver's machine has a Docker engine."""

    @property
    def is_joined(self) -> bool:
        """Others may use it too."""
        return self.node_requirements is not None


LOCAL_CLUSTER = ClusterContext()


class ActorGroup:
    """Use ``async with group.running():``.  Inside it buffer, scheduler and workers run, learners and engines once they
    are started."""

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
        actor_classes: ActorClasses = DEFAULT_ACTOR_CLASSES,
        cluster: ClusterContext = LOCAL_CLUSTER,
    ) -> None:
        self._config, self._directory, self._nodes = config, directory, nodes
        self._model_path, self._task_by_id, self._training_ids = model_path, tasks, training_ids
        self._events, self._actor_classes, self._cluster = events, actor_classes, cluster
        self._token = os.environ.get(RUN_TOKEN_VARIABLE, "")
        self._remote_hosts = RemoteHosts(
            config,
            directory,
            events,
            model=model_path,
            spawn_on=self._spawn_on,
            token=self._token,
            settled_s=rollout_request_deadline_s(config),
        )
        self._placements: dict[str, PlacementBundle] = {}
        """What is held of the cluster: actor → its place."""
        self._node_of_actor: dict[str, ClusterNode] = {}
        """Actor's name → its node."""
        self._tasks: dict[str, list[asyncio.Task[None]]] = defaultdict(list)
        """Node's name → what is done here for its actors."""
        self._node_gone: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Node's name → set once it is."""
        self._newest_learners = LearnerGroup((), 0.0)
        self._lr_changes: tuple[tuple[int, float], ...] = ()
        """(step, rate) that a person has asked for during this attempt."""
        self._generation = 0
        self._evaluation_count = 0
        self._sampled = SampledTokenCounter()
        self.workers: tuple[Remote[RolloutWorker], ...] = ()
        self.engines: tuple[Remote[Engine], ...] = ()
        self.weight_transport = WeightTransport()
        self._health_monitor = HealthMonitor(
            events, config.run.unresponsive_timeout_s, self.weight_transport, home=self._node_of, logs=self._logs_of
        )
        self._sender: tuple[Remote[WeightSender], ...] = ()
        self._evaluation_remotes: tuple[Remote[Any], ...] = ()
        """Who is at an evaluation beside training."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        config, directory, nodes, head = self._config, self._directory, self._nodes, self._nodes[0]
        engines, workers, copies = (
            place_engines(config, nodes),
            place_workers(config, nodes),
            place_weight_copies(config, nodes),
        )
        self._share, self._keys = (
            share_docker_engine(config, nodes),
            _make_sender_keys(head, (*expected_workers(config, nodes), EVALUATION_WORKER)),
        )
        exam = {EVALUATION_ENGINE: place_evaluation_engine(config, nodes)} if has_evaluation_engine(config) else {}
        by_role = plan_slots(config, head, engines | exam, workers) if self._cluster.is_joined else {}
        async with reserve_slots(f"{directory.run_id}/{directory.attempt}", by_role) as self._placements:
            await self._start(engines, workers, copies)
            try:
                yield
            finally:
                await asyncio.shield(self._stop())

    async def _start(
        self, engines: Mapping[str, ClusterNode], workers: Mapping[str, ClusterNode], copies: Mapping[str, ClusterNode]
    ) -> None:
        config, directory, crew, head = self._config, self._directory, self._actor_classes, self._nodes[0]
        self._endpoint = await self._start_buffer(self._keys)
        await self._remote_hosts.prepare_nodes(self._nodes, copies)
        told = scheduler_settings(config, directory, head, self._training_ids)
        self.scheduler = self._spawn_on(head, "scheduler", crew.scheduler, told, self.buffer)
        sender = self._start_sender()
        self.engines = tuple(
            self._spawn_engine(
                name,
                engine_spec(config, directory, self._remote_hosts.model_folder(home), name, home),
                home,
                sender,
            )
            for name, home in engines.items()
        )
        for engine, home in copies.items():
            self.weight_transport.copies[self._actor_name(engine)] = self._remote_hosts.copies[home.name]
        self.workers = tuple(self._spawn_worker(name, home) for name, home in workers.items())

    def _spawn_engine(
        self, name: str, spec: EngineSpec, home: ClusterNode, sender: RemoteWeightSender | None, *, seat: str = ""
    ) -> Remote[Engine]:
        gpus, options = engine_gpus(self._config), self._options(home, name, seat=seat)
        return spawn_actor(
            self._actor_classes.engine,
            replace(options, num_gpus=gpus, max_concurrency=spec.settings.max_concurrent_calls),
            spec,
            sender,
        )

    def _spawn_worker(self, name: str, home: ClusterNode) -> Remote[RolloutWorker]:
        told = worker_settings(
            self._config,
            self._directory,
            self._remote_hosts.model_folder(home),
            name,
            home,
            endpoint=self._endpoint,
            keys=self._keys,
            share=self._share,
        )
        return self._spawn_on(home, name, self._actor_classes.worker, told, self.scheduler, self.engines)

    async def _start_buffer(self, keys: RunKeys | None) -> str:
        """Where it receives trajectories."""
        head, port = self._nodes[0], self._config.buffer.port or find_free_port()
        told = buffer_spec(self._config, self._directory, head, port, keys)
        self.buffer = self._spawn_on(head, "buffer", self._actor_classes.buffer, told)
        try:
            async with asyncio.timeout(ACTOR_START_S):
                return await self.buffer.call(TrajectoryBuffer.start)
        except TimeoutError as error:
            raise InfraError(
                f"the buffer did not start within {ACTOR_START_S:g} s: see {self._directory.logs}"
            ) from error

    def _spawn_on(
        self, node: ClusterNode, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Remote[T]:
        """An actor on ``node``; calls to a worker are the driver's to repeat, which says so."""
        options = self._options(node, name)
        if cls is self._actor_classes.worker:
            options = replace(options, max_task_retries=0)
        return spawn_actor(cls, options, *args, **kwargs)

    def _options(self, node: ClusterNode, name: str, *, seat: str = "") -> ActorOptions:
        """Ray restarts the actor when its process dies, and repeats the calls to it.  ``seat``: whose of the places
        that are held, where that is not its name."""
        self._node_of_actor[self._actor_name(name)] = node
        return ActorOptions(
            name=self._actor_name(name),
            node_id=node.ray_id,
            bundle=self._placements.get(seat or name),
            max_restarts=-1,
            max_task_retries=-1,
            log=self._directory.log_place(name, node.name, actor_run_dir(self._config, self._directory, node)),
            env={RUN_TOKEN_VARIABLE: host_token(self._token, node.address)} if node.remote else {},
        )

    def _node_of(self, actor: Remote[Any]) -> ClusterNode:
        return self._node_of_actor[actor.name]

    def _logs_of(self, actor: Remote[Any]) -> Path:
        """Where it logs, on its machine."""
        return self._directory.logs_in(actor_run_dir(self._config, self._directory, self._node_of(actor)))

    def _actor_name(self, name: str) -> str:
        return f"{self._directory.run_id}/{self._directory.attempt}/{name}"

    # -- learner -------------------------------------------------------------------------------------------------

    async def start_learners(self) -> LearnerGroup:
        """A new generation of learner ranks on the head; the former one, if any, is ended.  One that dies or hangs
        while it starts is replaced."""
        for left in reversed(range(_STARTS)):
            learners = self._spawn_learners()
            try:
                await learners.call(LearnerRank.setup)
            except RemoteError as error:
                if not left:
                    raise
                self._events.emit("process.died", what=error.actor, why=error.why)
            else:
                return learners
        raise AssertionError("unreachable")

    async def set_learning_rate_from(self, step: int, lr: float) -> None:
        """The learning rate from optimizer step ``step`` on, also of a learner that is started again."""
        self._lr_changes = (*self._lr_changes, (step, lr))
        await self._newest_learners.call(LearnerRank.set_learning_rate, step, lr)

    def _spawn_learners(self) -> LearnerGroup:
        for rank in self._newest_learners.ranks:
            kill_actor(rank)
        self._generation += 1
        started = spawn_learner_group(
            replace(learner_spec(self._config, self._model_path), lr_changes=self._lr_changes),
            self._directory,
            self._nodes[0],
            generation=self._generation,
            placement=self._placements.get(LEARNER_ROLE),
            cls=self._actor_classes.learner,
        )
        self._newest_learners = started
        return started

    # -- engines -------------------------------------------------------------------------------------------------

    def _start_sender(self) -> RemoteWeightSender | None:
        """Who broadcasts weights into the servers, where that is their way."""
        if self._config.engine.weight_transfer is not WeightTransferMode.DIRECT:
            return None
        head, device = self._nodes[0], self._config.engine.broadcast_device
        options = replace(self._options(head, "sender", seat=LEARNER_ROLE), num_gpus=int(device == "cuda"))
        sender = spawn_actor(WeightSender, options, head.address, device)
        self._sender = (sender,)
        return RemoteWeightSender(sender)

    async def start_engines(self, manifest: WeightManifest) -> None:
        """Start every server on ``manifest``, all at once; one that does not come up is tried again, and one whose node
        is gone is waited for no more."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._start_unless_lost(engine, manifest))

    async def _start_unless_lost(self, engine: Remote[Engine], manifest: WeightManifest) -> None:
        try:
            await self._start_engine(engine, manifest)
        except RemoteError:
            gone = self._node_gone[self._node_of_actor[engine.name].name]
            with suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_S):
                    await gone.wait()
            if not gone.is_set():
                raise

    async def _start_engine(self, engine: Remote[Engine], manifest: WeightManifest) -> None:
        for left in reversed(range(_STARTS)):
            try:
                await engine.call(Engine.start, await self.weight_transport.deliver(engine, manifest, None))
            except EngineStartError as error:
                if not left:
                    raise
                self._events.emit("engine.restart_failed", engine=engine.name, why=str(error))
            else:
                return

    async def drain_engine(self, name: str) -> bool:
        """:meth:`~actors.engines.engine.Engine.drain`.  Raises UserError for a name that no engine has, InfraError."""
        engines = {short_actor_name(engine.name): engine for engine in self.engines}
        if name not in engines:
            raise UserError(f"no engine is called {name}: write one of {', '.join(engines)}")
        return await engines[name].call(Engine.drain, self._config.engine.request_timeout_s)

    async def supervise(
        self,
        newest: Callable[[], WeightManifest | None],
        lose_engine: Callable[[str], Awaitable[None]],
    ) -> None:
        """Until cancelled: name every process that died, end those that hang, keep every worker working, start the
        engines that Ray had to restart on the ``newest`` weights, bring what other machines write, and follow who joins
        and who is gone.  Raises :class:`~launch.hosts.membership_watch.ClusterLost`."""
        async with task_group() as group:
            for actor in self._long_lived:
                self._supervise_on_node(group, actor, self._health_monitor.watch_liveness(actor))
            for machine in self._remote_hosts.hosts.values():
                self._supervise_on_node(group, machine.log_sync.agent, machine.log_sync.run())
            for engine in self.engines:
                self._supervise_on_node(group, engine, self._health_monitor.keep_engine_serving(engine, newest))
            for worker in self.workers:
                self._supervise_on_node(
                    group, worker, self._health_monitor.keep_worker_running(worker, self._task_by_id)
                )
            group.create_task(self._follow_nodes(group, lose_engine))

    @property
    def _long_lived(self) -> tuple[Remote[Any], ...]:
        """Actors that are there from the start, or from their node's joining, to the end; learners apart."""
        here = (self.buffer, self.scheduler, *self.engines, *self._sender, *self.workers)
        return (*here, *self._remote_hosts.actors)

    def _supervise_on_node(self, group: asyncio.TaskGroup, actor: Remote[Any], work: Coroutine[Any, Any, None]) -> None:
        """Go on with ``work`` as long as the actor's node is there."""
        self._tasks[self._node_of_actor[actor.name].name].append(group.create_task(work))

    # -- who comes and who goes ----------------------------------------------------------------------------------

    async def _follow_nodes(self, group: asyncio.TaskGroup, lose_engine: Callable[[str], Awaitable[None]]) -> None:
        cluster = self._cluster
        roster = NodeMembership(self._nodes, max(len(self._nodes), self._config.cluster.max_nodes))
        async with aclosing(watch_membership(roster, cluster.own_processes)) as changes:
            async for change in changes:
                for why in change.refused:
                    self._events.emit("node.refused", why=why)
                for node in change.gone:
                    await self._remove_node(node, lose_engine)
                for node in change.joined:
                    self._tasks[node.name].append(group.create_task(self._add_node(group, roster, node)))

    async def _remove_node(self, node: ClusterNode, lose_engine: Callable[[str], Awaitable[None]]) -> None:
        """Its actors are gone for good.  Raises InfraError where no other is left to do their work."""
        self._events.emit("node.down", name=node.name, address=node.address)
        self._node_gone[node.name].set()
        for task in self._tasks.pop(node.name, []):
            task.cancel()
        for actor in (*self.workers, *self.engines, *self._evaluation_remotes):
            if self._is_on(node, actor):  # else Ray waits for its place to come back, and who asks it waits with Ray
                kill_actor(actor)
        self.workers = tuple(worker for worker in self.workers if not self._is_on(node, worker))
        lost = [engine for engine in self.engines if self._is_on(node, engine)]
        self.engines = tuple(engine for engine in self.engines if engine not in lost)
        self._remote_hosts.remove_node(node)
        if not self.workers or not self.engines:
            what = "agents" if self.engines else "an engine"
            raise InfraError(f"{node.name} ({node.address}) is gone, and no other node has {what}: start one")
        for engine in lost:
            await lose_engine(engine.name)
        for name in worker_names(self._config, node):
            await self.scheduler.call(RolloutScheduler.remove_worker, name)
        await self._remote_hosts.exclude_from_broadcast(node)

    def _is_on(self, node: ClusterNode, actor: Remote[Any]) -> bool:
        return self._node_of_actor[actor.name].ray_id == node.ray_id

    async def _add_node(self, group: asyncio.TaskGroup, roster: NodeMembership, node: ClusterNode) -> None:
        """Give it workers, if it has what they need."""
        try:
            able = await self._check_joining_node(node)
            await self._remote_hosts.prepare_nodes([self._nodes[0], able], {})
        except (LongshoreError, TimeoutError) as error:
            roster.refuse(node)
            self._remote_hosts.remove_node(node)
            why = f"{error} (it is asked again when its Ray is started again)"
            self._events.emit("node.refused", name=node.name, address=node.address, why=why)
            return
        self._events.emit("node.up", name=node.name, address=node.address)
        if (machine := self._remote_hosts.hosts.get(node.address)) is not None and machine.node.ray_id == node.ray_id:
            for actor in (machine.copies, machine.log_sync.agent):
                self._supervise_on_node(group, actor, self._health_monitor.watch_liveness(actor))
            self._supervise_on_node(group, machine.log_sync.agent, machine.log_sync.run())
        for name in worker_names(self._config, able):
            worker = self._spawn_worker(name, able)
            self.workers = (*self.workers, worker)
            self._supervise_on_node(group, worker, self._health_monitor.watch_liveness(worker))
            self._supervise_on_node(group, worker, self._health_monitor.keep_worker_running(worker, self._task_by_id))

    async def _check_joining_node(self, node: ClusterNode) -> ClusterNode:
        """The node with the roles that it can have.  Raises UserError where it can have no agents."""
        if self._keys is not None and not self._keys.clients.keys() >= {*worker_names(self._config, node)}:
            raise UserError(
                "more nodes have joined than this start of the run has keys for: stop it (python -m launch.ctl RUN "
                "stop) and go on with --resume"
            )
        return require_worker_role(node, await self._findings(node))

    async def _findings(self, node: ClusterNode) -> FindingsByNode:
        asked = self._cluster.node_requirements
        return {} if asked is None else await check_nodes([node], asked)

    # -- what dies -----------------------------------------------------------------------------------------------

    async def write_stall_report(self, token: str) -> tuple[str, str]:
        """Who waits for whom, and the file that has the stacks of every process and task."""
        logs = self._directory.logs
        evidence = await gather_evidence(
            (*self._long_lived, *self._evaluation_remotes, *self._newest_learners.ranks),
            sorted(logs.glob("*.stacks")),
            token,
        )
        line = describe_wait_chain(evidence)
        return line, str(await asyncio.to_thread(write_stall_report, logs, line, evidence))

    async def sampled_tokens(self) -> int:
        """Sampled by all engines so far."""
        return await self._sampled.count_tokens(self.engines)

    async def engine_loads(self) -> list[int]:
        """Requests that each engine has now."""
        return await query_engine_loads(self.engines)

    # -- workers -------------------------------------------------------------------------------------------------

    async def cancel_training(self) -> None:
        """Drop the training episodes that still run; those of a worker that is dead have ended."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(self._cancel_training(worker))

    async def _cancel_training(self, worker: Remote[RolloutWorker]) -> None:
        with suppress(RemoteError):
            await worker.call(RolloutWorker.cancel_training)

    async def cancel_trajectories(self, trajectories: Sequence[str]) -> None:
        """End the running episodes of these trajectories, wherever they run."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(self._cancel(worker, trajectories))

    async def _cancel(self, worker: Remote[RolloutWorker], trajectories: Sequence[str]) -> None:
        with suppress(RemoteError):
            await worker.call(RolloutWorker.cancel_attempts, trajectories)

    # -- evaluations beside training -----------------------------------------------------------------------------

    @asynccontextmanager
    async def evaluation_actors(self, manifest: WeightManifest) -> AsyncGenerator[None]:
        """A worker for an evaluation beside training, and an engine that serves ``manifest`` and nothing else; where
        the device is shared, the engines that there are.  Gone at the end.  Raises InfraError where they do not
        start, UserError where there is no place for them."""
        worker, own = self._spawn_evaluation_actors()
        self._evaluation_remotes = (worker, *own)
        try:
            async with background_services(
                *(self._fail_when_node_gone(self._node_of_actor[actor.name]) for actor in (worker, *own))
            ):
                await self._start_evaluation_engine(own, manifest)
                async with background_services(self._health_monitor.keep_worker_running(worker, self._task_by_id)):
                    try:
                        async with background_services(  # not while they stop: a supervised engine is started again
                            *(self._health_monitor.watch_liveness(actor) for actor in (worker, *own)),
                            *(self._health_monitor.keep_engine_serving(engine, lambda: manifest) for engine in own),
                        ):
                            yield
                    finally:
                        await asyncio.shield(self._stop_evaluation_actors(worker, own))
        finally:
            self._evaluation_remotes = ()
            for actor in (worker, *own):
                self.weight_transport.remove_engine(actor.name)
                kill_actor(actor)

    async def _start_evaluation_engine(self, own: Sequence[Remote[Engine]], manifest: WeightManifest) -> None:
        """Raises InfraError, also where there is no room for one: without a place of its own it waits for a GPU that
        others may have."""
        for engine in own:
            try:
                async with asyncio.timeout(ACTOR_START_S):
                    await engine.pid()
            except TimeoutError as error:
                what = f"the engine for evaluations has no process after {ACTOR_START_S:g} s"
                raise InfraError(f"{what}: `ray status` shows who has what it needs") from error
            async with background_services(self._health_monitor.watch_liveness(engine)):
                await self._start_engine(engine, manifest)

    async def _fail_when_node_gone(self, node: ClusterNode) -> None:
        """Raises InfraError once ``node`` is gone."""
        await self._node_gone[node.name].wait()
        raise InfraError(f"{node.name} ({node.address}), where the evaluation was, is gone")

    def require_evaluation_capacity(self) -> None:
        """Raises UserError where no evaluation beside training can be: for want of sandboxes, or of a GPU."""
        config = self._config
        if not config.online_evaluation_slots:
            raise UserError(
                f"sandbox.capacity_per_node = {config.sandbox.capacity_per_node} leaves no sandbox beside training's: "
                "raise it, --set sandbox.capacity_per_node=N with --resume"
            )
        if (
            not config.colocated
            and self._node_gone[(home := place_evaluation_engine(config, self._nodes)).name].is_set()
        ):
            raise UserError(
                f"{home.name} ({home.address}), which has the engine for evaluations, is gone: --resume places it anew"
            )

    def _spawn_evaluation_actors(self) -> tuple[Remote[RolloutWorker], tuple[Remote[Engine], ...]]:
        """The worker, and the engine that is its own."""
        config, directory, crew, abroad = self._config, self._directory, self._actor_classes, self._remote_hosts
        self.require_evaluation_capacity()
        self._evaluation_count, own = self._evaluation_count + 1, tuple[Remote[Engine], ...]()
        if not config.colocated:
            home, name = place_evaluation_engine(config, self._nodes), f"{EVALUATION_ENGINE}-{self._evaluation_count}"
            spec = evaluation_engine_spec(config, directory, abroad.model_folder(home), home)
            own = (self._spawn_engine(name, spec, home, None, seat=EVALUATION_ENGINE),)
            if home.remote:
                self.weight_transport.add_pinned_engine(self._actor_name(name), abroad.host_of(home).copies)
        at = self._node_of_actor[self.workers[0].name]
        settings = evaluation_worker_settings(
            config, directory, abroad.model_folder(at), at, endpoint=self._endpoint, keys=self._keys
        )
        name = f"{EVALUATION_WORKER}-{self._evaluation_count}"
        return self._spawn_on(at, name, crew.worker, settings, self.scheduler, own or self.engines), own

    async def _stop_evaluation_actors(self, worker: Remote[RolloutWorker], own: Sequence[Remote[Engine]]) -> None:
        if await self._stop_actors([worker], RolloutWorker.stop):
            self._health_monitor.last_worker_death = time.monotonic()
        await self._stop_actors(own, Engine.stop)

    # -- the end -------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Workers first (their containers), then engines, then the buffer.  What does not answer is left to Ray."""
        for worker in await self._stop_actors(self.workers, RolloutWorker.stop):
            kill_actor(worker)
            self._health_monitor.last_worker_death = time.monotonic()
        await self._stop_actors(self.engines, Engine.stop)
        await self._stop_actors([self.buffer], TrajectoryBuffer.stop)
        settle_s = self._settle_s
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep_containers(settle_s))
            group.create_task(self._remote_hosts.close(settle_s))

    @property
    def _settle_s(self) -> float | None:
        """So long Docker engines may still be at work for workers that died; None where none did."""
        if self._health_monitor.last_worker_death is None or not self._config.sandbox.uses_worker_pools:
            return None
        return max(0.0, self._health_monitor.last_worker_death + SETTLE_S - time.monotonic())

    async def _sweep_containers(self, settle_s: float | None) -> None:
        """Remove what workers that died left on this machine's engine, which may still be creating it."""
        if settle_s is None or not self._cluster.has_docker:
            return
        try:
            await sweep_run(self._directory.run_id, settle_s)
        except LongshoreError as error:
            self._events.emit("stop.failed", why=str(error))

    async def _stop_actors(
        self, actors: Sequence[Remote[T]], stop: Callable[[T], Coroutine[Any, Any, None]]
    ) -> list[Remote[T]]:
        """Those that did not."""
        async with asyncio.TaskGroup() as group:
            stopping = {actor: group.create_task(self._stop_one(actor.name, actor.call(stop))) for actor in actors}
        return [actor for actor, stopped in stopping.items() if not stopped.result()]

    async def _stop_one(self, name: str, stop: Coroutine[Any, Any, None]) -> bool:
        try:
            async with asyncio.timeout(ACTOR_STOP_S):
                await stop
        except TimeoutError:
            why = f"{name} did not answer within {ACTOR_STOP_S:g} s"
        except Exception as error:  # noqa: BLE001  # whatever one raises, the others have to be stopped too
            why = f"{name}: {type(error).__name__}: {error}"
        else:
            return True
        self._events.emit("stop.failed", why=why)
        return False


def _make_sender_keys(head: ClusterNode, workers: Iterable[str]) -> RunKeys | None:
    """Who may send trajectories, where others could reach the buffer: made anew by each start of a run, so that what an
    earlier one left behind is refused."""
    return None if is_loopback(head.address) else make_run_keys(workers)
