"""The actors of a run and where they live: learner, buffer and conductor on the head, a worker with its sandbox pool on
each node, as many engines as the recipe says, spread.

Buffer, conductor, workers and engines are restarted by Ray when their process dies; one that has not answered for
``run.silence_s`` is killed for it. Buffer and conductor find their state in the journal; workers are told to run again,
and an engine to start on the newest weights, by :meth:`Fleet.look_after`. A server that dies alone is restarted by its
engine. The learner is started again by the training loop, from a checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from actors.buffer import Buffer, BufferSettings
from actors.conductor import ConductorSettings
from actors.engines.engine import Engine, EngineSettings
from actors.engines.messages import EngineState
from actors.episode import EpisodeSettings
from actors.remote import ActorOptions, Remote, RemoteError, kill, restart, spawn
from actors.worker import TAKE_S, Worker, WorkerSettings
from launch.config import RunConfig
from launch.crew import CREW, Crew
from launch.learners import Learners
from launch.nodes import Node
from launch.prepare import Prepared
from launch.rundir import RunDirectory
from launch.settings import learner_environment, learner_settings
from launch.steering import own_in_flight
from learner.rank import LearnerRank
from protocol.errors import InfraError, LongshoreError, leaves
from protocol.events import EventLog
from protocol.loopback import free_port, is_loopback
from protocol.staleness import Admission
from protocol.stream import RunKeys, make_run_keys
from protocol.weights import WeightManifest
from sandbox.pool import PoolSettings
from sandbox.sweep import SETTLED_S, sweep_run

P = ParamSpec("P")
T = TypeVar("T")

_STOP_S = 15.0
_RETRY_S = 1.0
_LOOK_S = 2.0
_WORD_S = 30.0
_ANSWER_S = 1.0
"""An engine that is well has said by then what it counted."""
_START_S = 600.0
"""A process that starts may be silent for so long: it imports Ray, torch and more on a machine that may be busy."""


def ticket_deadline_s(config: RunConfig) -> float:
    """A worker that keeps its own deadlines has given a ticket back by then: the wait for it, the episode, the sending
    of its trajectory, and the word to the conductor."""
    return TAKE_S + config.rollout.episode_deadline_s + config.rollout.send_deadline_s + _WORD_S


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
        self._learners: tuple[Remote[LearnerRank], ...] = ()
        self._generation = 0
        self._worker_died: float | None = None
        self._tokens: dict[str, Counter] = defaultdict(Counter)
        self.workers: tuple[Remote[Worker], ...] = ()
        self.engines: tuple[Remote[Engine], ...] = ()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        keys = self._keys()
        self.buffer = self._on(self._nodes[0], "buffer", self._crew.buffer, self._buffer_settings(keys))
        try:
            async with asyncio.timeout(_START_S):
                endpoint = await self.buffer.call(Buffer.start)
        except TimeoutError as error:
            raise InfraError(f"the buffer did not start within {_START_S:g} s: see {self._directory.logs}") from error
        self.conductor = self._on(
            self._nodes[0], "conductor", self._crew.conductor, self._conductor_settings(), self.buffer
        )
        count = self._config.engine.count
        homes = [self._nodes[index % len(self._nodes)] for index in range(count)]
        self.engines = tuple(
            self._on(home, f"engine-{index}", self._crew.engine, self._engine_settings(index, home))
            for index, home in enumerate(homes)
        )
        self.workers = tuple(
            self._on(
                node,
                _worker_name(node, index),
                self._crew.worker,
                self._worker_settings(node, index, endpoint, keys),
                self.conductor,
                self.engines,
            )
            for node in self._nodes
            for index in range(self._config.rollout.workers_per_node)
        )
        try:
            yield
        finally:
            await asyncio.shield(self._stop())

    def _on(self, node: Node, name: str, cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Remote[T]:
        """An actor on ``node``.  Ray restarts it when its process dies, and repeats the calls to it; a worker's are the
        driver's to repeat, which says so."""
        options = ActorOptions(
            name=f"{self._directory.run_id}/{self._directory.attempt}/{name}",
            node_id=node.ray_id,
            max_restarts=-1,
            max_task_retries=0 if cls is self._crew.worker else -1,
        )
        return spawn(cls, options, *args, **kwargs)

    # -- learner -------------------------------------------------------------------------------------------------

    async def start_learners(self) -> Learners:
        """A new generation of learner ranks on the head; the former one, if any, is ended."""
        for rank in self._learners:
            kill(rank)
        self._generation += 1
        settings, port = learner_settings(self._config, self._prepared.model_path), free_port()
        ranks = self._config.learner.ranks
        self._learners = tuple(
            spawn(
                self._crew.learner,
                ActorOptions(
                    name=f"{self._directory.run_id}/{self._directory.attempt}.{self._generation}/learner-{rank}",
                    node_id=self._nodes[0].ray_id,
                    num_gpus=1 if self._config.learner.device == "cuda" else 0,
                    env=learner_environment(self._config),
                ),
                settings,
                rank,
                ranks,
                "127.0.0.1",
                port,
            )
            for rank in range(ranks)
        )
        learners = Learners(self._learners, self._config.learner.call_timeout_s)
        await learners.call(LearnerRank.setup)
        return learners

    # -- engines -------------------------------------------------------------------------------------------------

    async def start_engines(self, manifest: WeightManifest) -> None:
        """Start every server on ``manifest``, all at once."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(engine.call(Engine.start, manifest))

    # -- what dies -----------------------------------------------------------------------------------------------

    async def look_after(self, newest: Callable[[], WeightManifest | None]) -> None:
        """Until cancelled: name every process that died, end those that hang, keep every worker working, and start the
        engines that Ray had to restart on the ``newest`` weights."""
        async with asyncio.TaskGroup() as group:
            for actor in (self.buffer, self.conductor, *self.engines, *self.workers):
                group.create_task(self._keep_answering(actor))
            for engine in self.engines:
                group.create_task(self._keep_serving(engine, newest))
            for worker in self.workers:
                group.create_task(self._keep_working(worker))

    async def _keep_answering(self, actor: Remote[Any]) -> None:
        known, silence_s = 0, self._config.run.silence_s
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
            if known and pid != known:
                why = f"its process {known} ended; process {pid} is in its place"
                self._events.emit("process.died", what=actor.name, why=why, pid=known)
            known = pid
            await asyncio.sleep(_LOOK_S)

    async def _keep_serving(self, engine: Remote[Engine], newest: Callable[[], WeightManifest | None]) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                state = (await engine.call(Engine.status)).state
                if state is EngineState.NEW and (manifest := newest()) is not None:
                    await engine.call(Engine.start, manifest)
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

    # -- workers -------------------------------------------------------------------------------------------------

    async def cancel_training(self) -> None:
        """Drop the training episodes that still run."""
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.call(Worker.cancel_training))

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
        if self._worker_died is None:
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
            async with asyncio.timeout(_STOP_S):
                await stop
        except TimeoutError:
            why = f"{name} did not answer within {_STOP_S:g} s"
        except Exception as error:  # noqa: BLE001  # whatever one raises, the others have to be stopped too
            why = f"{name}: {type(error).__name__}: {error}"
        else:
            return True
        self._events.emit("stop.failed", why=why)
        return False

    # -- settings ------------------------------------------------------------------------------------------------

    def _keys(self) -> RunKeys | None:
        """Who may send trajectories, where others could reach the buffer: made anew by each start of a run, so that
        what an earlier one left behind is refused."""
        if is_loopback(self._nodes[0].address):
            return None
        workers = range(self._config.rollout.workers_per_node)
        return make_run_keys(_worker_name(node, index) for node in self._nodes for index in workers)

    def _buffer_settings(self, keys: RunKeys | None) -> BufferSettings:
        config = self._config
        return BufferSettings(
            run_dir=self._directory.path,
            run_id=self._directory.run_id,
            host=self._nodes[0].address,
            port=config.buffer.port or free_port(),
            curve=keys.server if keys is not None else None,
            budget_bytes=config.buffer.budget_bytes,
            max_trajectory_bytes=config.buffer.max_trajectory_bytes,
            disk_floor_bytes=config.run.disk_reserve_mb << 20,
            dynamic_sampling=config.dynamic_sampling,
            node=self._nodes[0].name,
        )

    def _conductor_settings(self) -> ConductorSettings:
        config = self._config
        return ConductorSettings(
            run_id=self._directory.run_id,
            run_dir=self._directory.path,
            node=self._nodes[0].name,
            tasks=self._prepared.training,
            group_size=config.rollout.group_size,
            admission=Admission(
                config.run.mode,
                config.rollout.groups_per_step,
                config.staleness.eta,
            ),
            total_steps=config.run.steps,
            replacement_limit=config.rollout.replacement_limit,
            ticket_deadline_s=ticket_deadline_s(config),
            seed=config.run.seed,
            order=config.data.order,
            in_flight=own_in_flight(config),
            publish_every=config.publish_every,
        )

    def _engine_settings(self, index: int, node: Node) -> EngineSettings:
        config = self._config
        return EngineSettings(
            name=f"engine-{index}",
            run_dir=self._directory.path,
            model_path=str(self._prepared.model_path),
            context_length=config.agent.context_tokens,
            max_total_tokens=config.engine.max_total_tokens,
            max_running=config.engine.max_running,
            device=config.engine.device,
            dtype=config.engine.dtype,
            deterministic=config.engine.deterministic,
            seed=config.run.seed,
            attempt=self._directory.attempt,
            node=node.name,
            start_timeout_s=config.engine.start_timeout_s,
        )

    def _worker_settings(self, node: Node, index: int, endpoint: str, keys: RunKeys | None) -> WorkerSettings:
        config, agent = self._config, self._config.agent
        name = _worker_name(node, index)
        share = max(1, config.rollout.episodes_per_worker // self._sharing)
        return WorkerSettings(
            name=name,
            node=node.name,
            run_id=self._directory.run_id,
            run_dir=self._directory.path,
            model_path=str(self._prepared.model_path),
            tools=agent.tools,
            endpoints=(endpoint,),
            curves=(keys.clients[name],) if keys is not None else None,
            episodes=share,
            episode=EpisodeSettings(
                system_prompt=agent.system_prompt,
                max_turns=agent.max_turns,
                max_malformed=agent.max_malformed,
                max_new_tokens=agent.max_new_tokens,
                context_tokens=agent.context_tokens,
                temperature=agent.temperature,
                generate_deadline_s=config.engine.request_timeout_s,
                engine_restart_s=config.engine.start_timeout_s,
                nominal_tokens_per_s=agent.nominal_tokens_per_s,
                time_limit_s=agent.time_limit_s,
                reward=config.rollout.reward,
            ),
            episode_deadline_s=config.rollout.episode_deadline_s,
            acquire_timeout_s=config.rollout.acquire_timeout_s,
            command_timeout_s=config.sandbox.command_timeout_s,
            grade_timeout_s=config.sandbox.grade_timeout_s,
            observation_chars=agent.observation_chars,
            send_deadline_s=config.rollout.send_deadline_s,
            pool=PoolSettings(
                pool=f"{self._directory.run_id}/{name}",
                run_id=self._directory.run_id,
                capacity=share,
                start_concurrency=max(1, config.sandbox.start_concurrency // self._sharing),
                unattended_s=config.sandbox.deadline_s,
                session_max_s=config.sandbox.max_s,
                start_timeout_s=config.sandbox.start_timeout_s,
                image=config.sandbox.image,
                drain_s=_STOP_S / 2,
                gate=config.sandbox.gate,
            ),
        )

    @property
    def _sharing(self) -> int:
        """Workers that share one Docker daemon's capacity: simulated nodes are all on this machine."""
        addresses = [node.address for node in self._nodes]
        return max(addresses.count(address) for address in addresses)


def _worker_name(node: Node, index: int) -> str:
    return f"worker-{node.name.removeprefix('node-')}-{index}"
