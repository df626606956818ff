"""The actors of a run and where they live: learner, buffer and conductor on the head, a worker with its sandbox pool on
each node, as many engines as the recipe says, spread; and for engines on other machines than the learner's a source of
weights on the head, and copies of them on each such machine.

All but the learner are restarted by Ray when their process dies; one that has not answered for
``run.silence_s`` is killed for it. Evaluations beside training have a worker and an engine that come and go with them
(:meth:`Fleet.examining`). Buffer and conductor find their state in the journal; workers are told to run again,
and an engine to start on the newest weights, by :meth:`Fleet.look_after`. A server that dies alone is restarted by its
engine. The learner is started again by the training loop, from a checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from actors.buffer import Buffer
from actors.engines.engine import Engine
from actors.engines.messages import EngineStartError, EngineState
from actors.remote import ActorOptions, Remote, RemoteError, kill, restart, short_name, spawn
from actors.weights.copies import HostCopies
from actors.weights.sender import RemoteSender, SenderSettings, WeightSender
from actors.weights.source import RemoteSource, WeightSource
from actors.worker import Worker
from launch.agenda import EXAM_ENGINE, EXAMINER
from launch.config import RunConfig
from launch.config.rollout import WeightPath
from launch.crew import CREW, Crew
from launch.delivery import Delivery
from launch.hang.evidence import gather_evidence
from launch.hang.report import write_report
from launch.hang.who import who_waits
from launch.learners import Learners, spawn_learners
from launch.nodes import Node
from launch.prepare import Prepared
from launch.rundir import RunDirectory
from launch.settings import (
    STOP_S,
    buffer_settings,
    conductor_settings,
    copies_settings,
    copy_homes,
    daemon_share,
    engine_gpus,
    engine_homes,
    engine_settings,
    exam_engine_settings,
    exam_home,
    examiner_settings,
    learner_settings,
    worker_homes,
    worker_settings,
)
from launch.structured import beside
from learner.rank import LearnerRank
from protocol.errors import InfraError, LongshoreError, UserError, leaves
from protocol.events import EventLog
from protocol.loopback import free_port, is_loopback
from protocol.stream import RunKeys, make_run_keys
from protocol.weights import WeightManifest
from sandbox.sweep import SETTLED_S, sweep_run

P = ParamSpec("P")
T = TypeVar("T")

_STARTS = 2
"""Times that a learner or a server may be started before its first word."""
_RETRY_S = 1.0
_LOOK_S = 2.0
_ANSWER_S = 1.0
"""An engine that is well has said by then what it counted."""
_START_S = 600.0
"""A process that starts may be silent for so long: it imports Ray, torch and more on a machine that may be busy."""


@dataclass(slots=True)
class Counter:
    """Sums up what a process counts which may begin anew at 0."""

    total: int = 0
    _last: int = 0

    def take(self, count: int) -> None:
        self.total += count - self._last if count >= self._last else count
        self._last = count


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
    ) -> None:
        self._config, self._directory, self._prepared, self._nodes = config, directory, prepared, nodes
        self._events, self._crew = events, crew
        self._newest_learners = Learners((), 0.0)
        self._lr_changes: tuple[tuple[int, float], ...] = ()
        """(step, rate) that a person has asked for during this attempt."""
        self._generation = 0
        self._exams = 0
        self._run_keys: RunKeys | None = None
        self._worker_died: float | None = None
        self._tokens: dict[str, Counter] = defaultdict(Counter)
        self.workers: tuple[Remote[Worker], ...] = ()
        self.engines: tuple[Remote[Engine], ...] = ()
        self.delivery = Delivery()
        self._carriers: tuple[Remote[Any], ...] = ()
        """The source of weights, and the copies of each machine."""
        self._examiners: tuple[Remote[Any], ...] = ()
        """Who is at an evaluation beside training."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        config, directory, crew, head = self._config, self._directory, self._crew, self._nodes[0]
        model, workers = self._prepared.model_path, worker_homes(config, self._nodes)
        engines, gpus = engine_homes(config, self._nodes), engine_gpus(config)
        share = daemon_share(config, self._nodes)
        self._run_keys = keys = _keys(head, (*workers, EXAMINER))
        self._endpoint = endpoint = await self._start_buffer(keys)
        told = conductor_settings(config, directory, head, self._prepared.training)
        self.conductor = self._on(head, "conductor", crew.conductor, told, self.buffer)
        sender = self._start_sender()
        self.engines = tuple(
            spawn(
                crew.engine,
                replace(self._options(home, name), num_gpus=gpus),
                engine_settings(config, directory, model, name, home),
                sender,
            )
            for name, home in engines.items()
        )
        self.delivery = self._start_delivery()
        self.workers = tuple(
            self._on(
                home,
                name,
                crew.worker,
                worker_settings(config, directory, model, name, home, endpoint=endpoint, keys=keys, share=share),
                self.conductor,
                self.engines,
            )
            for name, home in workers.items()
        )
        try:
            yield
        finally:
            await asyncio.shield(self._stop())

    async def _start_buffer(self, keys: RunKeys | None) -> str:
        """Where it receives trajectories."""
        head, port = self._nodes[0], self._config.buffer.port or free_port()
        told = buffer_settings(self._config, self._directory, head, port, keys)
        self.buffer = self._on(head, "buffer", self._crew.buffer, told)
        try:
            async with asyncio.timeout(_START_S):
                return await self.buffer.call(Buffer.start)
        except TimeoutError as error:
            raise InfraError(f"the buffer did not start within {_START_S:g} s: see {self._directory.logs}") from error

    def _on(self, node: Node, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Remote[T]:
        """An actor on ``node``; calls to a worker are the driver's to repeat, which says so."""
        options = self._options(node, name)
        if cls is self._crew.worker:
            options = replace(options, max_task_retries=0)
        return spawn(cls, options, *args, **kwargs)

    def _options(self, node: Node, name: str) -> ActorOptions:
        """Ray restarts the actor when its process dies, and repeats the calls to it."""
        return ActorOptions(
            name=self._actor_name(name),
            node_id=node.ray_id,
            max_restarts=-1,
            max_task_retries=-1,
            log=self._directory.log_of(name, node.name),
        )

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
        options = replace(self._options(head, "sender"), num_gpus=int(device == "cuda"))
        sender = spawn(WeightSender, options, SenderSettings(address=head.address, device=device))
        self._carriers = (sender,)
        return RemoteSender(sender)

    def _start_delivery(self) -> Delivery:
        """Copies for the engines that need them."""
        homes, head = copy_homes(self._config, self._nodes), self._nodes[0]
        hosts = {home.name: home for home in homes.values()}
        if not hosts:
            return Delivery()
        source = self._on(head, "weights", WeightSource, len(hosts), head.address)
        copies: dict[str, Remote[HostCopies]] = {}
        for name, home in hosts.items():
            told = copies_settings(self._config, self._directory, home)
            copies[name] = self._on(home, told.name, HostCopies, told, RemoteSource(source))
        self._carriers = (source, *copies.values())
        return Delivery({self._actor_name(engine): copies[home.name] for engine, home in homes.items()})

    async def start_engines(self, manifest: WeightManifest) -> None:
        """Start every server on ``manifest``, all at once; one that does not come up is tried again."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._start_engine(engine, manifest))

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

    # -- what dies -----------------------------------------------------------------------------------------------

    async def look_after(self, newest: Callable[[], WeightManifest | None]) -> None:
        """Until cancelled: name every process that died, end those that hang, keep every worker working, and start the
        engines that Ray had to restart on the ``newest`` weights."""
        async with asyncio.TaskGroup() as group:
            for actor in (self.buffer, self.conductor, *self.engines, *self._carriers, *self.workers):
                group.create_task(self._keep_answering(actor))
            for engine in self.engines:
                group.create_task(self._keep_serving(engine, newest))
            for worker in self.workers:
                group.create_task(self._keep_working(worker))

    async def _keep_answering(self, actor: Remote[Any]) -> None:
        known, offered, silence_s = 0, 0, self._config.run.silence_s
        while True:
            try:
                async with asyncio.timeout(silence_s if known else max(silence_s, _START_S)):
                    pid = await actor.pid()
            except RemoteError:
                pid = known  # it is being restarted
            except TimeoutError:
                why = f"its process {known or 'that starts'} does not answer; it is killed and started again"
                self._events.emit("process.hung", what=actor.name, why=why, pid=known)
                restart(actor)
                pid = known = 0
            if pid not in {0, offered} and await self._offers_stacks(actor):
                offered = pid
            if known and pid != known:
                why = f"its process {known} ended; process {pid} is in its place"
                self._events.emit("process.died", what=actor.name, why=why, pid=known)
            known = pid
            await asyncio.sleep(_LOOK_S)

    async def _offers_stacks(self, actor: Remote[Any]) -> bool:
        """Let a process that has begun offer its stacks; false where it has not answered at once."""
        name = short_name(actor.name)
        try:
            async with asyncio.timeout(_ANSWER_S):
                await actor.offer_stacks(self._directory.logs / f"{name}.stacks", name)
        except (RemoteError, TimeoutError):
            return False
        return True

    async def hang_report(self, token: str) -> tuple[str, str]:
        """Who waits for whom, and the file that has the stacks of every process and task."""
        several = (*self.engines, *self._carriers, *self.workers, *self._examiners)
        logs = self._directory.logs
        evidence = await gather_evidence(
            (self.buffer, self.conductor, *several, *self._newest_learners.ranks), sorted(logs.glob("*.stacks")), token
        )
        line = who_waits(evidence)
        return line, str(await asyncio.to_thread(write_report, logs, line, evidence))

    async def _keep_serving(self, engine: Remote[Engine], newest: Callable[[], WeightManifest | None]) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                state = (await engine.call(Engine.status)).state
                if state is EngineState.NEW and (manifest := newest()) is not None:
                    await engine.call(Engine.start, await self.delivery.to(engine, manifest, None))
                elif state is EngineState.STOPPED:  # by a defect: nobody else stops one during a run
                    restart(engine)
            except InfraError as error:
                self._events.emit("engine.restart_failed", engine=engine.name, why=str(error))

    async def _keep_working(self, worker: Remote[Worker]) -> None:
        while True:
            try:
                await worker.call(Worker.run, self._prepared.tasks)
            except Exception as error:
                why = [leaf for leaf in leaves(error) if isinstance(leaf, InfraError)]
                if len(why) < len(list(leaves(error))):
                    raise
                self._worker_died = time.monotonic()
                self._events.emit("worker.failed", worker=worker.name, why=str(why[0]))
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def engine_tokens(self) -> int:
        """Tokens sampled by all engines so far; of one that does not answer at once, what it said last.  What an engine
        did not live to tell is not counted."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._ask_tokens(engine))
        return sum(counter.total for counter in self._tokens.values())

    async def _ask_tokens(self, engine: Remote[Engine]) -> None:
        with suppress(RemoteError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                self._tokens[engine.name].take((await engine.call(Engine.statistics)).sampled_tokens)

    async def engine_loads(self) -> list[int]:
        """Requests that each engine has now; of those that answer at once."""
        found: list[int] = []

        async def ask(engine: Remote[Engine]) -> None:
            with suppress(RemoteError, TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    statistics = await engine.call(Engine.statistics)
                    found.append(statistics.running + statistics.queued)

        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(ask(engine))
        return found

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
            for engine in own:
                await self._start_engine(engine, manifest)
            async with beside(self._keep_working(worker)):
                try:
                    async with beside(  # not while they are stopped: who looks after an engine starts it again
                        *(self._keep_answering(actor) for actor in (worker, *own)),
                        *(self._keep_serving(engine, lambda: manifest) for engine in own),
                    ):
                        yield
                finally:
                    await asyncio.shield(self._stop_examiner(worker, own))
        finally:
            self._examiners = ()
            for actor in (worker, *own):
                kill(actor)

    def require_examiner_place(self) -> None:
        """Raises UserError where no evaluation beside training can be: for want of sandboxes, or of a GPU."""
        config = self._config
        if not config.exam_places:
            raise UserError(
                f"sandbox.capacity_per_node = {config.sandbox.capacity_per_node} leaves no sandbox beside training's: "
                "raise it, --set sandbox.capacity_per_node=N with --resume"
            )
        if not config.shared:
            exam_home(config, self._nodes)

    def _spawn_examiner(self) -> tuple[Remote[Worker], tuple[Remote[Engine], ...]]:
        """The worker, and the engine that is its own."""
        config, directory, crew, model = self._config, self._directory, self._crew, self._prepared.model_path
        self.require_examiner_place()
        head, self._exams, own = self._nodes[0], self._exams + 1, tuple[Remote[Engine], ...]()
        if not config.shared:
            home = exam_home(config, self._nodes)
            options = replace(self._options(home, f"{EXAM_ENGINE}-{self._exams}"), num_gpus=engine_gpus(config))
            own = (spawn(crew.engine, options, exam_engine_settings(config, directory, model, home), None),)
        told = examiner_settings(config, directory, model, head, endpoint=self._endpoint, keys=self._run_keys)
        name = f"{EXAMINER}-{self._exams}"
        return self._on(head, name, crew.worker, told, self.conductor, own or self.engines), own

    async def _stop_examiner(self, worker: Remote[Worker], own: Sequence[Remote[Engine]]) -> None:
        if await self._each_stop([worker], Worker.stop):
            self._worker_died = time.monotonic()
        await self._each_stop(own, Engine.stop)

    # -- the end -------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Workers first (their containers), then engines, then the buffer.  What does not answer is left to Ray."""
        for worker in await self._each_stop(self.workers, Worker.stop):
            kill(worker)
            self._worker_died = time.monotonic()
        await self._each_stop(self.engines, Engine.stop)
        await self._each_stop([self.buffer], Buffer.stop)
        await self._sweep()

    async def _sweep(self) -> None:
        """Remove what workers that died left on this machine's engine, which may still be creating it."""
        if self._worker_died is None or not self._config.sandbox.own:
            return
        try:
            await sweep_run(self._directory.run_id, max(0.0, self._worker_died + SETTLED_S - time.monotonic()))
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
