"""One run, phase by phase: nodes, model, warm start, evaluation, training, evaluation, report.

The driver wires; it decides nothing that a room decides.  Everything it starts is owned by a context manager here, so
that leaving, however it comes, takes it all down in order: workers first (their containers), then engines, learner and
buffer, then Ray.  What a crash of the driver itself leaves is the guardian's to end.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from actors.admission import Flow
from actors.buffer import Buffer
from actors.conductor import Conductor
from actors.evaluation import Attempt, EvaluationPlan
from launch.advisories.watch import AdvisoryWatch, silent_for
from launch.agenda import Agenda
from launch.best import Best, export_best
from launch.budget import Budget
from launch.config import RunConfig
from launch.crew import CREW, Crew
from launch.evaluation_files import AFTER, BEFORE, read_attempts, write_attempts
from launch.evaluations import headline, score
from launch.exam_files import Examined, standing_exams
from launch.exams import Exams
from launch.fanout.process import fanout_process
from launch.fleet import ALONE, Fleet
from launch.guardian import TOKEN
from launch.hang.stall import StallWatch
from launch.leaks import count_leaks, take_inventory
from launch.machines.checking import check_nodes, narrowed, remarks
from launch.machines.findings import question
from launch.machines.watch import ClusterLost
from launch.metrics import MetricsLog, read_metrics
from launch.monitor.process import monitor_process
from launch.monitor.progress import run_progress
from launch.monitor.report import write_report
from launch.monitor.store import RunStore
from launch.nodes import Node, head_processes, joined_nodes, local_nodes
from launch.parity import ParityWatch
from launch.parity_checks import ParityChecks
from launch.prepare import Prepared, prepare
from launch.probe import probe_settings
from launch.pusher import Pusher
from launch.ray_log import ray_log
from launch.rundir import SUMMARY_FILE, RunDirectory
from launch.settings import retention
from launch.standing import Stand
from launch.steering.boundary import Boundary, Ending
from launch.steering.desk import Desk
from launch.steering.pausing import is_paused
from launch.structured import beside
from launch.summary import SummaryFacts, failed_checks, summarise
from launch.training import Training, TrainingSettings
from launch.turns import Turns
from launch.warm_start import warm_start
from protocol.cli.exits import EXIT_FAILED
from protocol.cli.output import JsonOutput, shown
from protocol.errors import InfraError, UserError
from protocol.events import EventLog, Json
from protocol.filesystem import free_bytes
from protocol.journal import Accounting, DiskFull
from protocol.journal.repair import require_journal
from protocol.logs import get_log
from protocol.stacks import offer_stacks
from protocol.weights import WeightManifest
from sandbox.engine import Inventory

_NO_SPACE_BYTES = 1 << 20
_log = get_log(__name__)


class Driver:
    def __init__(
        self, config: RunConfig, directory: RunDirectory, temporary: Path, console: Console, *, crew: Crew = CREW
    ) -> None:
        self._config, self._directory, self._temporary, self._console = config, directory, temporary, console
        self._crew, self._cluster = crew, ALONE
        self._events = EventLog(directory.path, f"driver-{directory.attempt}", "node-0")
        self._since = time.time()
        self._finished = False
        self._ended: Ending | None = None
        """Why training ended."""
        self._evaluated: dict[str, int] = {}
        """Evaluation → step of its weights."""
        self._examined: list[Examined] = []
        self._best: Best | None = None

    async def run(self, *, resume: bool) -> dict[str, Json]:
        """From nothing, or from the newest checkpoint, to the summary.  Cancelling it stops the run in order."""
        path = self._directory.path
        begun, stock = time.monotonic(), await take_inventory(self._directory.run_id)
        self._cluster = replace(self._cluster, sweeps_here=stock is not None)
        async with self._monitor() as url:
            self._announce(url)
            async with (
                beside(run_progress(RunStore(path), self._console)),
                fanout_process(
                    path, self._config.metrics, self._directory.logs / "fanout.log", self._advise
                ) as figures,
            ):
                if figures:
                    self._console.print(f"metrics: {figures}")
                with self._ending():
                    cluster = self._config.cluster
                    self._phase("nodes", f"joining {cluster.address}" if cluster.address else "starting Ray")
                    async with self._nodes() as nodes:
                        books = await self._phases(nodes, resume=resume)
        return await self._summary(books, time.monotonic() - begun, stock)

    @contextmanager
    def _ending(self) -> Generator[None]:
        """Say how the run ended, while the page and the panel still listen, and whether it was for want of space."""
        reason = "interrupted"
        try:
            yield
            reason = "done"
        except DiskFull as error:
            reason = str(error)
            raise UserError(f"{error}; nothing is lost: go on with {self._directory.resume_options}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            _log.exception("the run ends")
            self._blame_full_disk(error)
            if isinstance(error, InfraError):
                self._console.print(f"to go on with the run: python -m launch.cluster {self._directory.resume_options}")
            raise
        finally:
            self._events.emit("run.finished", ok=reason == "done", reason=reason)

    def _blame_full_disk(self, error: Exception) -> None:
        """Raise UserError where there is no space left, whatever it was that failed for want of it."""
        path, free = self._directory.path, free_bytes(self._directory.path)
        if free < _NO_SPACE_BYTES and not isinstance(error, UserError):
            raise UserError(
                f"{path} has no space left ({free >> 10} KB free), and that ended the run: free some space "
                f"(du -xh {path} | sort -h | tail). Nothing that was acknowledged is lost: go on with "
                f"{self._directory.resume_options}"
            ) from error

    def conclude(self, summary: dict[str, Json]) -> dict[str, Json]:
        """Write summary and report, and say where they are.  Raises UserError where there is no space for them."""
        try:
            self._directory.write_json(SUMMARY_FILE, summary)
            report = write_report(self._directory.path)
        except OSError as error:
            self._blame_full_disk(error)
            raise
        self._console.print(f"summary: {shown(self._directory.path / SUMMARY_FILE)}\nreport:  {shown(report)}")
        return summary

    # -- phases --------------------------------------------------------------------------------------------------

    def _offer_stacks(self) -> None:
        """So that a hang can be looked into from outside, too."""
        offer_stacks(self._directory.logs / "driver.stacks", "driver")

    async def _phases(self, nodes: Sequence[Node], *, resume: bool) -> Accounting:
        """All of the run on ``nodes``; where its trajectories ended."""
        config, run_dir = self._config, self._directory.path
        self._offer_stacks()
        checkpoints = self._crew.checkpoints(run_dir, retention(config))
        checkpoint = await asyncio.to_thread(checkpoints.newest_sound, self._tell_torn) if resume else None
        if checkpoint is not None:
            require_journal(run_dir)
        self._phase("model", "building the model and the tasks")
        prepared = await asyncio.to_thread(prepare, config, run_dir)
        for problem in prepared.problems:
            self._console.print(f"left out: {problem}")
        config = self._config = self._within_epochs(len(prepared.training))
        if prepared.warm and config.warm_start.enabled and checkpoint is None:
            self._console.print(f"warm start: taken from an earlier run of the same model ({prepared.model_path})")
        fleet = Fleet(config, self._directory, prepared, nodes, self._events, crew=self._crew, cluster=self._cluster)
        async with fleet.running():
            stand = Stand(fleet.conductor)
            paused = self._stays_paused(stand)
            pusher = self._pusher(fleet, stand)
            training = Training(
                settings=self._training_settings(),
                learners=await fleet.start_learners(),
                buffer=fleet.buffer,
                conductor=fleet.conductor,
                pusher=pusher,
                turns=self._turns(pusher),
                checkpoints=checkpoints,
                metrics=MetricsLog(run_dir),
                events=self._events,
                parity=await self._parity(prepared),
                boundary=Boundary(paused=paused),
                restart_learners=fleet.start_learners,
                engine_tokens=fleet.engine_tokens,
            )
            first = await training.persist(
                training.publish if checkpoint is None else lambda: training.resume(checkpoint)
            )
            async with beside(
                self._unless_lost(fleet.look_after(lambda: pusher.to_start, pusher.lose)),
                pusher.run(),
                stand.repeat(),
                self._desk(fleet, training).serve(),
                (stall := self._stall_watch(fleet)).watch(),
                self._watch(fleet, stall).watch(),
                fleet.conductor.call(Conductor.run),
            ):
                if checkpoint is None:
                    await self._begin(first, fleet, training, prepared)
                else:
                    self._phase("engine", "starting SGLang")
                    await fleet.start_engines(first)
                    pusher.begin(first)
                if config.evaluation.before:
                    await self._evaluate(BEFORE, 0, fleet, prepared, training)
                await self._train(fleet, training, prepared, resumed=first if checkpoint is not None else None)
                await self._evaluate(AFTER, training.step, fleet, prepared, training)
                self._examined = await asyncio.to_thread(standing_exams, run_dir, training.lineage, training.version)
                self._best = await self._export_best(training)
                self._finished, self._ended = True, training.ended
                books = await fleet.buffer.call(Buffer.accounting)
        self._phase("done", "")
        return books

    async def _begin(self, first: WeightManifest, fleet: Fleet, training: Training, prepared: Prepared) -> None:
        """Start the engines on the ``first`` weights, warm the model up beside that, keep step 0 and serve it.  Where
        they share a device, one after the other."""

        async def warmed_up() -> WeightManifest:
            if self._config.warm_start.enabled and not prepared.warm:
                data = ", ".join(map(str, self._config.warm_start.data))
                self._phase("warm_start", f"supervised training on {data or 'scripted demonstrations'}")
                await warm_start(self._config, training.learners, prepared, self._events)
            return await training.begin()

        if self._config.shared:
            warm = await training.persist(warmed_up)
            self._phase("engine", "starting SGLang")
            await fleet.start_engines(warm)
            training.pusher.begin(warm)
            return
        async with asyncio.TaskGroup() as group:
            engines = group.create_task(fleet.start_engines(first))
            warm = await training.persist(warmed_up)
            if not engines.done():
                self._phase("engine", "starting SGLang")
        training.pusher.begin(first)
        await training.pusher.offer(warm)
        await training.pusher.wait_served_newest(self._patience_s)

    def _stays_paused(self, stand: Stand) -> bool:
        """Whether a person paused the run in an earlier attempt, and nobody has let it go on."""
        if not is_paused(self._directory.path):
            return False
        stand.begins(Flow.PAUSE)
        run = shown(self._directory.path)
        text = f"the run is paused, as it was asked to be before: python -m launch.ctl {run} resume lets it go on"
        self._events.emit("advisory", about="paused", text=text)
        return True

    def _stall_watch(self, fleet: Fleet) -> StallWatch:
        return StallWatch(
            events=self._events,
            limit_s=lambda: self._config.run.stall_s,
            sampled=fleet.engine_tokens,
            report=lambda: fleet.hang_report(os.environ[TOKEN]),
        )

    def _watch(self, fleet: Fleet, stall: StallWatch) -> AdvisoryWatch:
        return AdvisoryWatch(
            run_dir=self._directory.path,
            events=self._events,
            reserve_bytes=self._config.run.disk_reserve_mb << 20,
            loads=fleet.engine_loads,
            silent=silent_for(self._config),
            listeners=[stall.take],
        )

    def _desk(self, fleet: Fleet, training: Training) -> Desk:
        def adopt(config: RunConfig) -> None:
            self._config = config
            training.settings = self._training_settings()

        return Desk(
            run_dir=self._directory.path,
            events=self._events,
            stand=training.pusher.stand,
            conductor=fleet.conductor,
            training=training,
            config=self._config,
            adopt=adopt,
            learn_from=fleet.learn_from,
            cancel_episodes=fleet.cancel,
            drain_engine=fleet.drain_engine,
            evaluate=lambda reason: training.exams.ask(reason),  # noqa: PLW0108  they are there once training begins
            since=self._since,
        )

    async def _train(
        self, fleet: Fleet, training: Training, prepared: Prepared, *, resumed: WeightManifest | None
    ) -> None:
        """``resumed``: what the run goes on with."""
        self._phase("training", "")
        served = training.pusher.served
        exams = self._exams(fleet, training, prepared)
        async with beside(exams.run()) if exams is not None else nullcontext():
            if exams is not None and resumed is not None:
                await exams.resume(training.lineage, training.version)
                await exams.published(resumed)
            await training.pusher.stand.training(served.step if served else training.step)
            await training.run()
            await training.pusher.stand.ended()
            await fleet.cancel_training()
            await training.exams.idle()
        await training.pusher.wait_served_newest(self._patience_s)
        await fleet.buffer.call(Buffer.end_run)

    def _exams(self, fleet: Fleet, training: Training, prepared: Prepared) -> Exams | None:
        """Evaluations beside training; None where no task is held out."""
        if not prepared.held_out:
            return None
        config, turns, pusher = self._config, training.turns, training.pusher

        async def served(manifest: WeightManifest) -> None:
            if config.shared:
                await pusher.wait_served(manifest)

        exams = training.exams = Exams(
            run_dir=self._directory.path,
            agenda=Agenda(config.evaluation.every_steps, config.run.steps),
            plan=self._plan("", prepared),
            held_out_families=self._held_out_families,
            conductor=fleet.conductor,
            examining=fleet.examining,
            served=served,
            newest=lambda: None if turns.learning else pusher.newest,
            require_place=fleet.require_examiner_place,
            checkpoints=training.checkpoints,
            events=self._events,
            own_engine=not config.shared,
        )
        return exams

    def _plan(self, name: str, prepared: Prepared) -> EvaluationPlan:
        told = self._config.evaluation
        return EvaluationPlan(name, prepared.held_out, told.attempts, told.greedy_attempts, self._config.run.seed)

    async def _export_best(self, training: Training) -> Best | None:
        """The best checkpoint, if one is to be kept, and its weights as a model's folder."""
        if not self._config.checkpoint.keep_best:
            return None
        return await export_best(self._directory.path, training.checkpoints, training.export, self._events)

    @property
    def _patience_s(self) -> float:
        """For every engine, also one that has to be started again and loaded twice."""
        engine = self._config.engine
        return engine.start_timeout_s + 2 * engine.update_timeout_s

    def _pusher(self, fleet: Fleet, stand: Stand) -> Pusher:
        """Engines that stood aside all come back at once: none of them serves meanwhile."""
        engine, share = self._config.engine, 1.0 if self._config.shared else 0.5
        return Pusher(
            fleet.engines, stand, self._events, engine.update_timeout_s, share, engine.update_loss, fleet.delivery
        )

    def _turns(self, pusher: Pusher) -> Turns:
        """An engine's lease begins anew with each call to the learner, between two of which a publication and a
        checkpoint may have to be written."""
        lease_s = 3 * self._config.learner.call_timeout_s
        return Turns(shared=self._config.shared, pusher=pusher, lease_s=lease_s, patience_s=self._patience_s)

    async def _parity(self, prepared: Prepared) -> ParityChecks:
        config, every = self._config, self._config.stop.parity_every_steps
        settings = await asyncio.to_thread(probe_settings, config, prepared) if every else None
        dtypes = f"engine.dtype = '{config.engine.dtype}' and learner.dtype = '{config.learner.dtype}'"
        return ParityChecks(settings, every, ParityWatch(config.parity_k3, dtypes), self._events)

    async def _evaluate(self, name: str, step: int, fleet: Fleet, prepared: Prepared, training: Training) -> None:
        """Evaluate the weights of ``step``, unless an earlier attempt of this run has done so, or has gone past it."""
        self._evaluated[name] = step
        done = training.step != step or read_attempts(self._directory.path, name, step) is not None
        if done or not prepared.held_out:
            return
        self._phase(f"eval_{name}", "")
        attempts = await self._beside(step, training)
        if attempts is None:
            attempts = await fleet.conductor.call(Conductor.evaluate, self._plan(name, prepared))
        write_attempts(self._directory, name, step, attempts)
        await asyncio.to_thread(training.checkpoints.scored, step, score(attempts).pass_at_1)
        told = headline(attempts, self._held_out_families)
        self._events.emit("eval.finished", name=name, step=step, **told)

    async def _beside(self, step: int, training: Training) -> Sequence[Attempt] | None:
        """What an evaluation of these weights beside training came to, where there was one."""
        standing = await asyncio.to_thread(standing_exams, self._directory.path, training.lineage, training.version)
        return next((exam.attempts for exam in standing if exam.step == step), None)

    # -- pieces --------------------------------------------------------------------------------------------------

    @property
    def _held_out_families(self) -> tuple[str, ...]:
        family = self._config.data.held_out_family
        return (family,) if family else ()

    def _phase(self, name: str, detail: str) -> None:
        self._events.emit("run.phase", phase=name, detail=detail)
        _log.info("phase", phase=name, detail=detail)

    def _announce(self, url: str) -> None:
        config = self._config
        self._events.emit(
            "run.started",
            run=self._directory.run_id,
            recipe=config.run.name,
            mode=config.run.mode.value,
            nodes=config.cluster.nodes,
            seed=config.run.seed,
            steps=config.run.steps,
            eta=config.staleness.eta,
            evaluates=config.evaluation.tasks_per_family > 0,
            url=url,
        )

    @asynccontextmanager
    async def _monitor(self) -> AsyncGenerator[str]:
        """The page's address; "" without one."""
        if not self._config.monitor.enabled:
            yield ""
            return
        log = self._directory.logs / "monitor.log"
        async with monitor_process(self._directory.path, port=self._config.monitor.port, log=log) as url:
            if not url:
                again = f"python -m launch.monitor {shown(self._directory.path)}"
                self._console.print(f"no live monitor ({shown(log)} says why), and the run goes on without: {again}")
            yield url

    @asynccontextmanager
    async def _nodes(self) -> AsyncGenerator[list[Node]]:
        cluster = self._config.cluster
        if cluster.address:
            source = joined_nodes(
                cluster.address, cluster.nodes, cluster.node_wait_s, {TOKEN: os.environ[TOKEN]}, self._say_alive
            )
        else:
            if cluster.nodes > 1:
                self._console.print(f"no --address: {cluster.nodes} Ray nodes are simulated on this machine")
            source = local_nodes(cluster.nodes, self._temporary)
        with ray_log(self._directory.logs / "ray.log"):
            async with source as found:
                nodes = await self._checked(found)
                for node in nodes:
                    self._events.emit("node.up", name=node.name, address=node.address)
                yield nodes

    def _advise(self, text: str) -> None:
        self._events.emit("advisory", about="metrics", text=text)

    async def _checked(self, nodes: list[Node]) -> list[Node]:
        """Those of a cluster, with the roles that they can have.  Raises UserError for what has to be mended first.
        Nodes that are simulated here are this machine, which has been looked at."""
        if not self._config.cluster.address:
            self._cluster = replace(self._cluster, own_processes=tuple(head_processes(self._temporary)))
            return nodes
        asked = await asyncio.to_thread(question, self._config)
        findings = await check_nodes(nodes, asked)
        able = narrowed(nodes, findings)
        for line in remarks(nodes, findings):
            self._console.print(line)
        self._cluster = replace(self._cluster, asked=asked)
        return able

    async def _unless_lost(self, work: Coroutine[Any, Any, None]) -> None:
        """``work``, and the end of this process at once where the cluster is lost: what Ray holds of the driver waits
        for it in vain, and the guardian ends the rest."""
        try:
            await work
        except ClusterLost as error:
            self._events.emit("run.finished", ok=False, reason=str(error))
            resume = f"python -m launch.cluster {self._directory.resume_options}"
            line = f"error: {error}; nothing that was acknowledged is lost: go on with {resume}"
            self._console.print(line)
            JsonOutput.end_process(EXIT_FAILED, line)

    def _tell_torn(self, aside: Path, why: str) -> None:
        self._events.emit("checkpoint.torn", path=str(aside), why=why)
        self._console.print(f"passed over: the checkpoint {shown(aside)} is damaged ({why})")

    def _say_alive(self, alive: int) -> None:
        self._console.print(f"{alive} of {self._config.cluster.nodes} Ray nodes alive")

    def _within_epochs(self, tasks: int) -> RunConfig:
        """The configuration with the steps that its epochs take, and a word about it."""
        config, epochs = self._config.for_tasks(tasks), self._config.stop.after_epochs
        if config.run.steps < self._config.run.steps:
            groups = config.rollout.groups_per_step
            text = f"stop.after_epochs = {epochs}: {config.run.steps} steps of {groups} groups, for {tasks} tasks"
            self._events.emit("advisory", about="stop", text=text)
        return config

    def _training_settings(self) -> TrainingSettings:
        config = self._config
        return TrainingSettings(
            run_dir=self._directory.path,
            attempt=self._directory.attempt,
            steps=config.run.steps,
            groups_per_step=config.rollout.groups_per_step,
            eta=config.staleness.eta,
            policy=config.staleness.policy,
            publish_every=config.publish_every,
            checkpoint_every=config.checkpoint.every_steps,
            budget=Budget(
                config.stop.after_steps,
                config.stop.after_tokens,
                config.stop.after_trajectories,
                config.stop.after_hours,
                config.stop.after_s,
            ),
            group_size=config.rollout.group_size,
            nonfinite_limit=config.learner.nonfinite_limit,
            keeps_reference=config.kl.coefficient > 0,
        )

    async def _summary(self, books: Accounting, seconds: float, stock: Inventory | None) -> dict[str, Json]:
        config, path = self._config, self._directory.path
        evaluations = {name: read_attempts(path, name, step) for name, step in self._evaluated.items()}
        facts = SummaryFacts(
            recipe=config.run.name,
            mode=config.run.mode.value,
            control=config.run.control.value,
            nodes=config.cluster.nodes,
            placement=config.cluster.placement.value,
            seed=config.run.seed,
            eta=config.staleness.eta,
            seconds=seconds,
            evaluations={name: attempts for name, attempts in evaluations.items() if attempts is not None},
            exams=self._examined,
            best=self._best,
            held_out=self._held_out_families,
            accounting=books,
            leaked=await count_leaks(stock, self._directory.run_id),
            finished=self._finished,
            ended=self._ended.value if self._ended is not None else "",
        )
        summary = summarise(path, facts)
        failed = failed_checks(facts, read_metrics(path))
        summary |= {"ok": not failed, "failed_checks": [*failed]}
        for line in failed:
            self._console.print(f"check failed: {line}")
        return orjson.loads(orjson.dumps(summary))
