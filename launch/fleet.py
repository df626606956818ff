"""The actors of a run and where they live: learner, buffer and conductor on the head, a worker with its sandbox pool on
each node that may have one, as many engines as the recipe says, spread; and what other machines than the driver's need
beside (:mod:`launch.machines.abroad`).

All but the learner are restarted by Ray when their process dies; one that has not answered for
``run.silence_s`` is killed for it. Evaluations beside training have a worker and an engine that come and go with them
(:meth:`Fleet.examining`). Buffer and conductor find their state in the journal; workers are told to run again,
and an engine to start on the newest weights, by :meth:`Fleet.look_after`. A server that dies alone is restarted by its
engine. The learner is started again by the training loop, from a checkpoint.

A node that is gone takes its actors with it: what its workers were at is issued again at once, and nobody waits for its
engines. One that joins gets workers, as long as there are fewer nodes than the run may have.
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

from actors.buffer import Buffer
from actors.conductor import Conductor
from actors.engines.engine import Engine
from actors.engines.messages import EngineStartError
from actors.engines.settings import EngineSettings
from actors.places import Place
from actors.remote import ActorOptions, Remote, RemoteError, kill, short_name, spawn
from actors.weights.sender import RemoteSender, SenderSettings, WeightSender
from actors.worker import Worker
from launch.agenda import EXAM_ENGINE, EXAMINER
from launch.config import RunConfig
from launch.config.rollout import WeightPath
from launch.crew import CREW, Crew
from launch.delivery import Delivery
from launch.engine_figures import SampledTokens, loads
from launch.guardian import TOKEN, machine_token
from launch.hang.evidence import gather_evidence
from launch.hang.report import write_report
from launch.hang.who import who_waits
from launch.learners import Learners, spawn_learners
from launch.machines.abroad import Abroad
from launch.machines.checking import Findings, check_nodes, with_agents
from launch.machines.findings import Question
from launch.machines.places import LEARNER, held, seats
from launch.machines.roster import Roster
from launch.machines.watch import follow
from launch.nodes import Node
from launch.prepare import Prepared
from launch.rundir import RunDirectory
from launch.settings import (
    STOP_S,
    actors_folder,
    buffer_settings,
    conductor_settings,
    copy_homes,
    daemon_share,
    engine_gpus,
    engine_homes,
    engine_settings,
    exam_engine_settings,
    exam_home,
    examiner_settings,
    expected_workers,
    has_exam_engine,
    learner_settings,
    worker_homes,
    worker_names,
    worker_settings,
)
from launch.structured import beside
from launch.vigil import START_S, Vigil
from learner.rank import LearnerRank
from protocol.errors import InfraError, LongshoreError, UserError
from protocol.events import EventLog
from protocol.loopback import free_port, is_loopback
from protocol.stream import RunKeys, make_run_keys
from protocol.structured import task_group
from protocol.weights import WeightManifest
from sandbox.sweep import SETTLED_S, sweep_run

P = ParamSpec("P")
T = TypeVar("T")

_STARTS = 2
"""Times that a learner or a server may be started before its first word."""
_NEWS_S = 5.0
"""Whoever asks an actor hears of the end of its node so much earlier than we do, at most."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a run's nodes are part of."""

    own_processes: tuple[int, ...] = ()
    """Ray's on the head, where it was started here."""
    asked: Question | None = None
    """Of a node that joins; None where none does, for the nodes were started here."""
    sweeps_here: bool = True
    """The driver's machine has a Docker engine."""

    @property
    def shared(self) -> bool:
        """Others may use it too."""
        return self.asked is not None


ALONE = Cluster()


class Fleet:
    """``async with fleet.running():`` buffer, conductor and workers are there; learners and engines when started."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        prepared: Prepared,
        nodes: Sequence[Node],
        events: EventLog,
        *,
        crew: Crew = CREW,
        cluster: Cluster = ALONE,
    ) -> None:
        self._config, self._directory, self._prepared, self._nodes = config, directory, prepared, nodes
        self._events, self._crew, self._cluster = events, crew, cluster
        self._token = os.environ.get(TOKEN, "")
        self._abroad = Abroad(config, directory, events, model=prepared.model_path, on=self._on, token=self._token)
        self._places: dict[str, Place] = {}
        """What is held of the cluster: actor → its place."""
        self._homes: dict[str, Node] = {}
        """Actor's name → its node."""
        self._tasks: dict[str, list[asyncio.Task[None]]] = defaultdict(list)
        """Node's name → what is done here for its actors."""
        self._gone: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Node's name → set once it is."""
        self._newest_learners = Learners((), 0.0)
        self._lr_changes: tuple[tuple[int, float], ...] = ()
        """(step, rate) that a person has asked for during this attempt."""
        self._generation = 0
        self._exams = 0
        self._sampled = SampledTokens()
        self.workers: tuple[Remote[Worker], ...] = ()
        self.engines: tuple[Remote[Engine], ...] = ()
        self.delivery = Delivery()
        self._vigil = Vigil(events, config.run.silence_s, self.delivery, home=self._home_of, logs=self._logs_of)
        self._sender: tuple[Remote[WeightSender], ...] = ()
        self._examiners: tuple[Remote[Any], ...] = ()
        """Who is at an evaluation beside training."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        config, directory, nodes, head = self._config, self._directory, self._nodes, self._nodes[0]
        engines, workers, copies = engine_homes(config, nodes), worker_homes(config, nodes), copy_homes(config, nodes)
        self._share, self._keys = daemon_share(config, nodes), _keys(head, (*expected_workers(config, nodes), EXAMINER))
        exam = {EXAM_ENGINE: exam_home(config, nodes)} if has_exam_engine(config) else {}
        by_role = seats(config, head, engines | exam, workers) if self._cluster.shared else {}
        async with held(f"{directory.run_id}/{directory.attempt}", by_role) as self._places:
            await self._start(engines, workers, copies)
            try:
                yield
            finally:
                await asyncio.shield(self._stop())

    async def _start(
        self, engines: Mapping[str, Node], workers: Mapping[str, Node], copies: Mapping[str, Node]
    ) -> None:
        config, directory, crew, head = self._config, self._directory, self._crew, self._nodes[0]
        self._endpoint = await self._start_buffer(self._keys)
        await self._abroad.settle(self._nodes, copies)
        told = conductor_settings(config, directory, head, self._prepared.training)
        self.conductor = self._on(head, "conductor", crew.conductor, told, self.buffer)
        sender = self._start_sender()
        self.engines = tuple(
            self._engine(name, engine_settings(config, directory, self._abroad.model(home), name, home), home, sender)
            for name, home in engines.items()
        )
        for engine, home in copies.items():
            self.delivery.copies[self._actor_name(engine)] = self._abroad.copies[home.name]
        self.workers = tuple(self._worker(name, home) for name, home in workers.items())

    def _engine(
        self, name: str, told: EngineSettings, home: Node, sender: RemoteSender | None, *, seat: str = ""
    ) -> Remote[Engine]:
        gpus, options = engine_gpus(self._config), self._options(home, name, seat=seat)
        return spawn(self._crew.engine, replace(options, num_gpus=gpus, max_concurrency=told.calls), told, sender)

    def _worker(self, name: str, home: Node) -> Remote[Worker]:
        told = worker_settings(
            self._config,
            self._directory,
            self._abroad.model(home),
            name,
            home,
            endpoint=self._endpoint,
            keys=self._keys,
            share=self._share,
        )
        return self._on(home, name, self._crew.worker, told, self.conductor, self.engines)

    async def _start_buffer(self, keys: RunKeys | None) -> str:
        """Where it receives trajectories."""
        head, port = self._nodes[0], self._config.buffer.port or free_port()
        told = buffer_settings(self._config, self._directory, head, port, keys)
        self.buffer = self._on(head, "buffer", self._crew.buffer, told)
        try:
            async with asyncio.timeout(START_S):
                return await self.buffer.call(Buffer.start)
        except TimeoutError as error:
            raise InfraError(f"the buffer did not start within {START_S:g} s: see {self._directory.logs}") from error

    def _on(self, node: Node, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Remote[T]:
        """An actor on ``node``; calls to a worker are the driver's to repeat, which says so."""
        options = self._options(node, name)
        if cls is self._crew.worker:
            options = replace(options, max_task_retries=0)
        return spawn(cls, options, *args, **kwargs)

    def _options(self, node: Node, name: str, *, seat: str = "") -> ActorOptions:
        """Ray restarts the actor when its process dies, and repeats the calls to it.  ``seat``: whose of the places
        that are held, where that is not its name."""
        self._homes[self._actor_name(name)] = node
        return ActorOptions(
            name=self._actor_name(name),
            node_id=node.ray_id,
            place=self._places.get(seat or name),
            max_restarts=-1,
            max_task_retries=-1,
            log=self._directory.log_of(name, node.name, actors_folder(self._config, self._directory, node)),
            env={TOKEN: machine_token(self._token, node.address)} if node.remote else {},
        )

    def _home_of(self, actor: Remote[Any]) -> Node:
        return self._homes[actor.name]

    def _logs_of(self, actor: Remote[Any]) -> Path:
        """Where it logs, on its machine."""
        return self._directory.logs_below(actors_folder(self._config, self._directory, self._home_of(actor)))

    def _actor_name(self, name: str) -> str:
        return f"{self._directory.run_id}/{self._directory.attempt}/{name}"

    # -- learner -------------------------------------------------------------------------------------------------

    async def start_learners(self) -> Learners:
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

    async def learn_from(self, step: int, lr: float) -> None:
        """The learning rate from optimizer step ``step`` on, also of a learner that is started again."""
        self._lr_changes = (*self._lr_changes, (step, lr))
        await self._newest_learners.call(LearnerRank.learn_from, step, lr)

    def _spawn_learners(self) -> Learners:
        for rank in self._newest_learners.ranks:
            kill(rank)
        self._generation += 1
        started = spawn_learners(
            self._config.learner,
            replace(learner_settings(self._config, self._prepared.model_path), lr_changes=self._lr_changes),
            self._directory,
            self._nodes[0],
            generation=self._generation,
            place=self._places.get(LEARNER),
            cls=self._crew.learner,
        )
        self._newest_learners = started
        return started

    # -- engines -------------------------------------------------------------------------------------------------

    def _start_sender(self) -> RemoteSender | None:
        """Who broadcasts weights into the servers, where that is their way."""
        if self._config.engine.weights is not WeightPath.DIRECT:
            return None
        head, device = self._nodes[0], self._config.engine.sender
        options = replace(self._options(head, "sender", seat=LEARNER), num_gpus=int(device == "cuda"))
        sender = spawn(WeightSender, options, SenderSettings(address=head.address, device=device))
        self._sender = (sender,)
        return RemoteSender(sender)

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
            gone = self._gone[self._homes[engine.name].name]
            with suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_S):
                    await gone.wait()
            if not gone.is_set():
                raise

    async def _start_engine(self, engine: Remote[Engine], manifest: WeightManifest) -> None:
        for left in reversed(range(_STARTS)):
            try:
                await engine.call(Engine.start, await self.delivery.to(engine, manifest, None))
            except EngineStartError as error:
                if not left:
                    raise
                self._events.emit("engine.restart_failed", engine=engine.name, why=str(error))
            else:
                return

    async def drain_engine(self, name: str) -> bool:
        """:meth:`~actors.engines.engine.Engine.drain`.  Raises UserError for a name that no engine has, InfraError."""
        engines = {short_name(engine.name): engine for engine in self.engines}
        if name not in engines:
            raise UserError(f"no engine is called {name}: write one of {', '.join(engines)}")
        return await engines[name].call(Engine.drain, self._config.engine.request_timeout_s)

    async def look_after(
        self,
        newest: Callable[[], WeightManifest | None],
        lose_engine: Callable[[str], Awaitable[None]],
    ) -> None:
        """Until cancelled: name every process that died, end those that hang, keep every worker working, start the
        engines that Ray had to restart on the ``newest`` weights, bring what other machines write, and follow who joins
        and who is gone.  Raises :class:`~launch.machines.watch.ClusterLost`."""
        async with task_group() as group:
            for actor in self._long_lived:
                self._keep(group, actor, self._vigil.answering(actor))
            for machine in self._abroad.machines.values():
                self._keep(group, machine.courier.post, machine.courier.run())
            for engine in self.engines:
                self._keep(group, engine, self._vigil.serving(engine, newest))
            for worker in self.workers:
                self._keep(group, worker, self._vigil.working(worker, self._prepared.tasks))
            group.create_task(self._follow_nodes(group, lose_engine))

    @property
    def _long_lived(self) -> tuple[Remote[Any], ...]:
        """Actors that are there from the start, or from their node's joining, to the end; learners apart."""
        here = (self.buffer, self.conductor, *self.engines, *self._sender, *self.workers)
        return (*here, *self._abroad.actors)

    def _keep(self, group: asyncio.TaskGroup, actor: Remote[Any], work: Coroutine[Any, Any, None]) -> None:
        """Go on with ``work`` as long as the actor's node is there."""
        self._tasks[self._homes[actor.name].name].append(group.create_task(work))

    # -- who comes and who goes ----------------------------------------------------------------------------------

    async def _follow_nodes(self, group: asyncio.TaskGroup, lose_engine: Callable[[str], Awaitable[None]]) -> None:
        cluster = self._cluster
        roster = Roster(self._nodes, max(len(self._nodes), self._config.cluster.max_nodes))
        async with aclosing(follow(roster, cluster.own_processes)) as changes:
            async for change in changes:
                for why in change.refused:
                    self._events.emit("node.refused", why=why)
                for node in change.gone:
                    await self._leave(node, lose_engine)
                for node in change.joined:
                    self._tasks[node.name].append(group.create_task(self._join(group, roster, node)))

    async def _leave(self, node: Node, lose_engine: Callable[[str], Awaitable[None]]) -> None:
        """Its actors are gone for good.  Raises InfraError where no other is left to do their work."""
        self._events.emit("node.down", name=node.name, address=node.address)
        self._gone[node.name].set()
        for task in self._tasks.pop(node.name, []):
            task.cancel()
        for actor in (*self.workers, *self.engines, *self._examiners):
            if self._is_on(node, actor):  # else Ray waits for its place to come back, and who asks it waits with Ray
                kill(actor)
        self.workers = tuple(worker for worker in self.workers if not self._is_on(node, worker))
        lost = [engine for engine in self.engines if self._is_on(node, engine)]
        self.engines = tuple(engine for engine in self.engines if engine not in lost)
        self._abroad.forget(node)
        if not self.workers or not self.engines:
            what = "agents" if self.engines else "an engine"
            raise InfraError(f"{node.name} ({node.address}) is gone, and no other node has {what}: start one")
        for engine in lost:
            await lose_engine(engine.name)
        for name in worker_names(self._config, node):
            await self.conductor.call(Conductor.gone, name)
        await self._abroad.spread_without(node)

    def _is_on(self, node: Node, actor: Remote[Any]) -> bool:
        return self._homes[actor.name].ray_id == node.ray_id

    async def _join(self, group: asyncio.TaskGroup, roster: Roster, node: Node) -> None:
        """Give it workers, if it has what they need."""
        try:
            able = await self._able(node)
            await self._abroad.settle([self._nodes[0], able], {})
        except (LongshoreError, TimeoutError) as error:
            roster.refuse(node)
            self._abroad.forget(node)
            why = f"{error} (it is asked again when its Ray is started again)"
            self._events.emit("node.refused", name=node.name, address=node.address, why=why)
            return
        self._events.emit("node.up", name=node.name, address=node.address)
        if (machine := self._abroad.machines.get(node.address)) is not None and machine.home.ray_id == node.ray_id:
            for actor in (machine.copies, machine.courier.post):
                self._keep(group, actor, self._vigil.answering(actor))
            self._keep(group, machine.courier.post, machine.courier.run())
        for name in worker_names(self._config, able):
            worker = self._worker(name, able)
            self.workers = (*self.workers, worker)
            self._keep(group, worker, self._vigil.answering(worker))
            self._keep(group, worker, self._vigil.working(worker, self._prepared.tasks))

    async def _able(self, node: Node) -> Node:
        """The node with the roles that it can have.  Raises UserError where it can have no agents."""
        if self._keys is not None and not self._keys.clients.keys() >= {*worker_names(self._config, node)}:
            raise UserError(
                "more nodes have joined than this start of the run has keys for: stop it (python -m launch.ctl RUN "
                "stop) and go on with --resume"
            )
        return with_agents(node, await self._findings(node))

    async def _findings(self, node: Node) -> Findings:
        asked = self._cluster.asked
        return {} if asked is None else await check_nodes([node], asked)

    # -- what dies -----------------------------------------------------------------------------------------------

    async def hang_report(self, token: str) -> tuple[str, str]:
        """Who waits for whom, and the file that has the stacks of every process and task."""
        logs = self._directory.logs
        evidence = await gather_evidence(
            (*self._long_lived, *self._examiners, *self._newest_learners.ranks), sorted(logs.glob("*.stacks")), token
        )
        line = who_waits(evidence)
        return line, str(await asyncio.to_thread(write_report, logs, line, evidence))

    async def engine_tokens(self) -> int:
        """Sampled by all engines so far."""
        return await self._sampled.tokens(self.engines)

    async def engine_loads(self) -> list[int]:
        """Requests that each engine has now."""
        return await loads(self.engines)

    # -- workers -------------------------------------------------------------------------------------------------

    async def cancel_training(self) -> None:
        """Drop the training episodes that still run; those of a worker that is dead have ended."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(self._cancel_training(worker))

    async def _cancel_training(self, worker: Remote[Worker]) -> None:
        with suppress(RemoteError):
            await worker.call(Worker.cancel_training)

    async def cancel(self, trajectories: Sequence[str]) -> None:
        """End the running episodes of these trajectories, wherever they run."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(self._cancel(worker, trajectories))

    async def _cancel(self, worker: Remote[Worker], trajectories: Sequence[str]) -> None:
        with suppress(RemoteError):
            await worker.call(Worker.cancel, trajectories)

    # -- evaluations beside training -----------------------------------------------------------------------------

    @asynccontextmanager
    async def examining(self, manifest: WeightManifest) -> AsyncGenerator[None]:
        """A worker for an evaluation beside training, and an engine that serves ``manifest`` and nothing else; where
        the device is shared, the engines that there are.  Gone at the end.  Raises InfraError where they do not
        start, UserError where there is no place for them."""
        worker, own = self._spawn_examiner()
        self._examiners = (worker, *own)
        try:
            async with beside(*(self._unless_gone(self._homes[actor.name]) for actor in (worker, *own))):
                await self._start_own(own, manifest)
                async with beside(self._vigil.working(worker, self._prepared.tasks)):
                    try:
                        async with beside(  # not while they are stopped: who looks after an engine starts it again
                            *(self._vigil.answering(actor) for actor in (worker, *own)),
                            *(self._vigil.serving(engine, lambda: manifest) for engine in own),
                        ):
                            yield
                    finally:
                        await asyncio.shield(self._stop_examiner(worker, own))
        finally:
            self._examiners = ()
            for actor in (worker, *own):
                self.delivery.forget(actor.name)
                kill(actor)

    async def _start_own(self, own: Sequence[Remote[Engine]], manifest: WeightManifest) -> None:
        """Raises InfraError, also where there is no room for one: without a place of its own it waits for a GPU that
        others may have."""
        for engine in own:
            try:
                async with asyncio.timeout(START_S):
                    await engine.pid()
            except TimeoutError as error:
                what = f"the engine for evaluations has no process after {START_S:g} s"
                raise InfraError(f"{what}: `ray status` shows who has what it needs") from error
            async with beside(self._vigil.answering(engine)):
                await self._start_engine(engine, manifest)

    async def _unless_gone(self, node: Node) -> None:
        """Raises InfraError once ``node`` is gone."""
        await self._gone[node.name].wait()
        raise InfraError(f"{node.name} ({node.address}), where the evaluation was, is gone")

    def require_examiner_place(self) -> None:
        """Raises UserError where no evaluation beside training can be: for want of sandboxes, or of a GPU."""
        config = self._config
        if not config.exam_places:
            raise UserError(
                f"sandbox.capacity_per_node = {config.sandbox.capacity_per_node} leaves no sandbox beside training's: "
                "raise it, --set sandbox.capacity_per_node=N with --resume"
            )
        if not config.shared and self._gone[(home := exam_home(config, self._nodes)).name].is_set():
            raise UserError(
                f"{home.name} ({home.address}), which has the engine for evaluations, is gone: --resume places it anew"
            )

    def _spawn_examiner(self) -> tuple[Remote[Worker], tuple[Remote[Engine], ...]]:
        """The worker, and the engine that is its own."""
        config, directory, crew, abroad = self._config, self._directory, self._crew, self._abroad
        self.require_examiner_place()
        self._exams, own = self._exams + 1, tuple[Remote[Engine], ...]()
        if not config.shared:
            home, name = exam_home(config, self._nodes), f"{EXAM_ENGINE}-{self._exams}"
            told = exam_engine_settings(config, directory, abroad.model(home), home)
            own = (self._engine(name, told, home, None, seat=EXAM_ENGINE),)
            if home.remote:
                self.delivery.lend(self._actor_name(name), abroad.machine(home).copies)
        at = self._homes[self.workers[0].name]
        settings = examiner_settings(config, directory, abroad.model(at), at, endpoint=self._endpoint, keys=self._keys)
        name = f"{EXAMINER}-{self._exams}"
        return self._on(at, name, crew.worker, settings, self.conductor, own or self.engines), own

    async def _stop_examiner(self, worker: Remote[Worker], own: Sequence[Remote[Engine]]) -> None:
        if await self._each_stop([worker], Worker.stop):
            self._vigil.worker_died = time.monotonic()
        await self._each_stop(own, Engine.stop)

    # -- the end -------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Workers first (their containers), then engines, then the buffer.  What does not answer is left to Ray."""
        for worker in await self._each_stop(self.workers, Worker.stop):
            kill(worker)
            self._vigil.worker_died = time.monotonic()
        await self._each_stop(self.engines, Engine.stop)
        await self._each_stop([self.buffer], Buffer.stop)
        settle_s = self._settle_s
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep(settle_s))
            group.create_task(self._abroad.close(settle_s))

    @property
    def _settle_s(self) -> float | None:
        """So long Docker engines may still be at work for workers that died; None where none did."""
        if self._vigil.worker_died is None or not self._config.sandbox.own:
            return None
        return max(0.0, self._vigil.worker_died + SETTLED_S - time.monotonic())

    async def _sweep(self, settle_s: float | None) -> None:
        """Remove what workers that died left on this machine's engine, which may still be creating it."""
        if settle_s is None or not self._cluster.sweeps_here:
            return
        try:
            await sweep_run(self._directory.run_id, settle_s)
        except LongshoreError as error:
            self._events.emit("stop.failed", why=str(error))

    async def _each_stop(
        self, actors: Sequence[Remote[T]], stop: Callable[[T], Coroutine[Any, Any, None]]
    ) -> list[Remote[T]]:
        """Those that did not."""
        async with asyncio.TaskGroup() as group:
            stopping = {actor: group.create_task(self._stop_one(actor.name, actor.call(stop))) for actor in actors}
        return [actor for actor, stopped in stopping.items() if not stopped.result()]

    async def _stop_one(self, name: str, stop: Coroutine[Any, Any, None]) -> bool:
        try:
            async with asyncio.timeout(STOP_S):
                await stop
        except TimeoutError:
            why = f"{name} did not answer within {STOP_S:g} s"
        except Exception as error:  # noqa: BLE001  # whatever one raises, the others have to be stopped too
            why = f"{name}: {type(error).__name__}: {error}"
        else:
            return True
        self._events.emit("stop.failed", why=why)
        return False


def _keys(head: Node, workers: Iterable[str]) -> RunKeys | None:
    """Who may send trajectories, where others could reach the buffer: made anew by each start of a run, so that what an
    earlier one left behind is refused."""
    return None if is_loopback(head.address) else make_run_keys(workers)
