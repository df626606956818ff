"""One run, phase by phase: nodes, model, warm start, evaluation, training, evaluation, report.

The driver wires; it decides nothing that a room decides.  Everything it starts is owned by a context manager here, so
that leaving, however it comes, takes it all down in order: workers first (their containers), then engines, learner and
buffer, then Ray.  What a crash of the driver itself leaves is left to the process reaper.
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

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.scheduler.admission import RolloutFlow
from actors.scheduler.evaluation import EvaluationPlan
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.actor_classes import DEFAULT_ACTOR_CLASSES, ActorClasses
from launch.actor_group.group import LOCAL_CLUSTER, ActorGroup
from launch.alerts.alert_watch import AlertWatch, silenced_alerts
from launch.checkpoints.best_checkpoint import BestCheckpoint, export_best_checkpoint
from launch.checkpoints.store import CheckpointStore
from launch.config import RunConfig
from launch.control.actions import ControlActions
from launch.control.pause_state import is_paused
from launch.control.run_state import RunStatePublisher
from launch.control.server import ControlServer
from launch.control.step_hooks import StepHooks, TrainingEnding
from launch.data.preparation import PreparedRun, prepare_run
from launch.data.warm_start import run_warm_start
from launch.evaluation.online.online_evaluator import OnlineEvaluator
from launch.evaluation.online.run_evaluations import (
    AFTER,
    BEFORE,
    OnlineEvaluationResult,
    make_run_spec,
    read_run_evaluation,
    results_on_lineage,
    write_run_evaluation,
)
from launch.evaluation.online.schedule import EvaluationSchedule
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.evaluation.scores import evaluation_headline, score_attempts
from launch.exporters.process import run_exporters_process
from launch.hosts.cluster_nodes import ClusterNode, join_cluster_nodes, ray_head_processes, start_local_nodes
from launch.hosts.membership_watch import ClusterLostError
from launch.hosts.node_checks import check_nodes, describe_findings, restrict_roles
from launch.hosts.node_requirements import make_node_requirements
from launch.hosts.ray_log import redirect_ray_log
from launch.monitor.process import run_monitor_process
from launch.monitor.progress import show_progress
from launch.monitor.reports.run_report import write_run_report
from launch.monitor.run_state.store import RunStore
from launch.processes.background_tasks import background_services
from launch.processes.process_reaper import RUN_TOKEN_VARIABLE
from launch.run.docker_leaks import count_leaks, take_inventory
from launch.run.summary import SummaryFacts, list_failed_checks, summarise_run
from launch.run_records.metrics_log import MetricsLog, read_metrics
from launch.run_records.run_directory import SUMMARY_FILE, RunDirectory
from launch.stall_diagnosis.detector import StallDetector
from launch.training.logprob_parity import ParityMonitor
from launch.training.loop import TrainingLoop, TrainingSettings
from launch.training.parity_checker import ParityChecker
from launch.training.parity_probe import make_probe_settings
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from protocol.cli.exit_codes import EXIT_FAILED
from protocol.cli.output import JsonOutput, display_path
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog, JsonValue
from protocol.files.filesystem import free_bytes
from protocol.journal import DiskFullError, JournalAccounting
from protocol.journal.repair import require_journal
from protocol.processes.stack_dumps import register_stack_dump
from protocol.run_directory.process_log import get_logger
from protocol.weights import WeightManifest
from sandbox.docker.inventory import DockerInventory

_NO_SPACE_BYTES = 1 << 20
_log = get_logger(__name__)


class Driver:
    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        temporary: Path,
        console: Console,
        *,
        actor_classes: ActorClasses = DEFAULT_ACTOR_CLASSES,
        checkpoint_store: type[CheckpointStore] = CheckpointStore,
    ) -> None:
        self._config, self._directory, self._temporary, self._console = config, directory, temporary, console
        self._actor_classes, self._checkpoint_store, self._cluster = actor_classes, checkpoint_store, LOCAL_CLUSTER
        self._events = EventLog(directory.path, f"driver-{directory.attempt}", "node-0")
        self._since = time.time()
        self._finished = False
        self._ending: TrainingEnding | None = None
        """Why training ended."""
        self._evaluated_steps: dict[str, int] = {}
        """Evaluation → step of its weights."""
        self._online_results: list[OnlineEvaluationResult] = []
        self._best: BestCheckpoint | None = None

    async def run(self, *, resume: bool) -> dict[str, JsonValue]:
        """From nothing, or from the newest checkpoint, to the summary.  Cancelling it stops the run in order."""
        path = self._directory.path
        begun, stock = time.monotonic(), await take_inventory(self._directory.run_id)
        self._cluster = replace(self._cluster, has_docker=stock is not None)
        async with self._monitor() as url:
            self._emit_run_started(url)
            async with (
                background_services(show_progress(RunStore(path), self._console)),
                run_exporters_process(
                    path, self._config.metrics, self._directory.logs / "exporters.log", self._emit_metrics_alert
                ) as figures,
            ):
                if figures:
                    self._console.print(f"metrics: {figures}")
                with self._report_end():
                    cluster = self._config.cluster
                    self._enter_phase("nodes", f"joining {cluster.address}" if cluster.address else "starting Ray")
                    async with self._nodes() as nodes:
                        books = await self._run_phases(nodes, resume=resume)
        return await self._summary(books, time.monotonic() - begun, stock)

    @contextmanager
    def _report_end(self) -> Generator[None]:
        """Say how the run ended, while the page and the panel still listen, and whether it was for want of space."""
        reason = "interrupted"
        try:
            yield
            reason = "done"
        except DiskFullError as error:
            reason = str(error)
            raise UserError(f"{error}; nothing is lost: go on with {self._directory.resume_options}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            _log.exception("the run ends")
            self._raise_if_disk_full(error)
            if isinstance(error, InfraError):
                self._console.print(f"to go on with the run: python -m launch.cluster {self._directory.resume_options}")
            raise
        finally:
            self._events.emit("run.finished", ok=reason == "done", reason=reason)

    def _raise_if_disk_full(self, error: Exception) -> None:
        """Raise UserError where there is no space left, whatever it was that failed for want of it."""
        path, free = self._directory.path, free_bytes(self._directory.path)
        if free < _NO_SPACE_BYTES and not isinstance(error, UserError):
            raise UserError(
                f"{path} has no space left ({free >> 10} KB free), and that ended the run: free some space "
                f"(du -xh {path} | sort -h | tail). Nothing that was acknowledged is lost: go on with "
                f"{self._directory.resume_options}"
            ) from error

    def write_results(self, summary: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Write summary and report, and say where they are.  Raises UserError where there is no space for them."""
        try:
            self._directory.write_json(SUMMARY_FILE, summary)
            report = write_run_report(self._directory.path)
        except OSError as error:
            self._raise_if_disk_full(error)
            raise
        self._console.print(
            f"summary: {display_path(self._directory.path / SUMMARY_FILE)}\nreport:  {display_path(report)}"
        )
        return summary

    # -- phases --------------------------------------------------------------------------------------------------

    def _offer_stacks(self) -> None:
        """So that a hang can be looked into from outside, too."""
        register_stack_dump(self._directory.logs / "driver.stacks", "driver")

    async def _run_phases(self, nodes: Sequence[ClusterNode], *, resume: bool) -> JournalAccounting:
        """All of the run on ``nodes``; where its trajectories ended."""
        config, run_dir = self._config, self._directory.path
        self._offer_stacks()
        checkpoints = self._checkpoint_store(run_dir, config.checkpoint)
        checkpoint = (
            await asyncio.to_thread(checkpoints.newest_intact, self._report_torn_checkpoint) if resume else None
        )
        if checkpoint is not None:
            require_journal(run_dir)
        self._enter_phase("model", "building the model and the tasks")
        prepared = await asyncio.to_thread(prepare_run, config, run_dir)
        for problem in prepared.problems:
            self._console.print(f"left out: {problem}")
        config = self._config = self._within_epochs(len(prepared.training_ids))
        if prepared.warm_started and config.warm_start.enabled and checkpoint is None:
            self._console.print(f"warm start: taken from an earlier run of the same model ({prepared.model_path})")
        fleet = ActorGroup(
            config,
            self._directory,
            nodes,
            self._events,
            model_path=prepared.model_path,
            tasks=prepared.tasks,
            training_ids=prepared.training_ids,
            actor_classes=self._actor_classes,
            cluster=self._cluster,
        )
        async with fleet.running():
            stand = RunStatePublisher(fleet.scheduler)
            paused = self._restore_pause(stand)
            pusher = self._weight_sync_manager(fleet, stand)
            training = TrainingLoop(
                settings=self._training_settings(),
                learners=await fleet.start_learners(),
                buffer=fleet.buffer,
                scheduler=fleet.scheduler,
                weight_sync=pusher,
                colocation=self._colocation_manager(pusher),
                checkpoints=checkpoints,
                metrics=MetricsLog(run_dir),
                events=self._events,
                parity=await self._parity_checker(prepared),
                step_hooks=StepHooks(paused=paused),
                restart_learners=fleet.start_learners,
                sampled_tokens=fleet.sampled_tokens,
            )
            first = await training.retry_with_new_learners(
                training.publish if checkpoint is None else lambda: training.resume_from(checkpoint)
            )
            async with background_services(
                self._end_process_if_cluster_lost(
                    fleet.supervise(lambda: pusher.weights_to_start, pusher.remove_engine)
                ),
                pusher.run(),
                stand.repeat_state(),
                self._control_server(fleet, training).serve(),
                (stall := self._stall_detector(fleet)).watch(),
                self._alert_watch(fleet, stall).watch(),
                fleet.scheduler.call(RolloutScheduler.run),
            ):
                if checkpoint is None:
                    await self._start_engines_and_warm_up(first, fleet, training, prepared)
                else:
                    self._enter_phase("engine", "starting SGLang")
                    await fleet.start_engines(first)
                    pusher.set_served(first)
                if config.evaluation.before_training:
                    await self._evaluate(BEFORE, 0, fleet, prepared, training)
                await self._train(fleet, training, prepared, resumed=first if checkpoint is not None else None)
                await self._evaluate(AFTER, training.step, fleet, prepared, training)
                self._online_results = await asyncio.to_thread(
                    results_on_lineage, run_dir, training.lineage, training.version
                )
                self._best = await self._export_best(training)
                self._finished, self._ending = True, training.ending
                books = await fleet.buffer.call(TrajectoryBuffer.accounting)
        self._enter_phase("done", "")
        return books

    async def _start_engines_and_warm_up(
        self, first: WeightManifest, fleet: ActorGroup, training: TrainingLoop, prepared: PreparedRun
    ) -> None:
        """Start the engines on the ``first`` weights, warm the model up beside that, keep step 0 and serve it.  Where
        they share a device, one after the other."""

        async def warmed_up() -> WeightManifest:
            if self._config.warm_start.enabled and not prepared.warm_started:
                data = ", ".join(map(str, self._config.warm_start.data))
                self._enter_phase("warm_start", f"supervised training on {data or 'scripted demonstrations'}")
                await run_warm_start(self._config, training.learners, prepared, self._events)
            return await training.publish_initial_weights()

        if self._config.colocated:
            warm = await training.retry_with_new_learners(warmed_up)
            self._enter_phase("engine", "starting SGLang")
            await fleet.start_engines(warm)
            training.weight_sync.set_served(warm)
            return
        async with asyncio.TaskGroup() as group:
            engines = group.create_task(fleet.start_engines(first))
            warm = await training.retry_with_new_learners(warmed_up)
            if not engines.done():
                self._enter_phase("engine", "starting SGLang")
        training.weight_sync.set_served(first)
        await training.weight_sync.push_weights(warm)
        await training.weight_sync.wait_newest_served(self._all_engines_timeout_s)

    def _restore_pause(self, stand: RunStatePublisher) -> bool:
        """Whether a person paused the run in an earlier attempt, and nobody has let it go on."""
        if not is_paused(self._directory.path):
            return False
        stand.restore_flow(RolloutFlow.PAUSE)
        run = display_path(self._directory.path)
        text = f"the run is paused, as it was asked to be before: python -m launch.ctl {run} resume lets it go on"
        self._events.emit("alert.raised", name="paused", text=text)
        return True

    def _stall_detector(self, fleet: ActorGroup) -> StallDetector:
        return StallDetector(
            events=self._events,
            limit_s=lambda: self._config.run.stall_timeout_s,
            sampled_tokens=fleet.sampled_tokens,
            report=lambda: fleet.write_stall_report(os.environ[RUN_TOKEN_VARIABLE]),
        )

    def _alert_watch(self, fleet: ActorGroup, stall: StallDetector) -> AlertWatch:
        return AlertWatch(
            run_dir=self._directory.path,
            events=self._events,
            reserve_bytes=self._config.run.disk_reserve_mb << 20,
            engine_loads=fleet.engine_loads,
            silenced=silenced_alerts(self._config),
            listeners=[stall.observe_event],
        )

    def _control_server(self, fleet: ActorGroup, training: TrainingLoop) -> ControlServer:
        def adopt(config: RunConfig) -> None:
            self._config = config
            training.settings = self._training_settings()

        actions = ControlActions(
            run_dir=self._directory.path,
            events=self._events,
            run_state=training.weight_sync.run_state,
            scheduler=fleet.scheduler,
            training=training,
            config=self._config,
            apply_config=adopt,
            set_learning_rate_from=fleet.set_learning_rate_from,
            cancel_episodes=fleet.cancel_trajectories,
            drain_engine=fleet.drain_engine,
            evaluate=lambda reason: training.online_evaluation.request_evaluation(reason),  # noqa: PLW0108  they are there once training begins
        )
        return ControlServer(
            run_dir=self._directory.path,
            events=self._events,
            execute=actions.execute,
            attempt_started_at=self._since,
        )

    async def _train(
        self, fleet: ActorGroup, training: TrainingLoop, prepared: PreparedRun, *, resumed: WeightManifest | None
    ) -> None:
        """``resumed``: what the run goes on with."""
        self._enter_phase("training", "")
        served = training.weight_sync.served
        exams = self._online_evaluation(fleet, training, prepared)
        async with background_services(exams.run()) if exams is not None else nullcontext():
            if exams is not None and resumed is not None:
                await exams.resume(training.lineage, training.version)
                await exams.on_published(resumed)
            await training.weight_sync.run_state.start_training(served.step if served else training.step)
            await training.run()
            await training.weight_sync.run_state.end_training()
            await fleet.cancel_training()
            await training.online_evaluation.wait_idle()
        await training.weight_sync.wait_newest_served(self._all_engines_timeout_s)
        await fleet.buffer.call(TrajectoryBuffer.end_run)

    def _online_evaluation(
        self, fleet: ActorGroup, training: TrainingLoop, prepared: PreparedRun
    ) -> OnlineEvaluator | None:
        """Evaluations beside training; None where no task is held out."""
        if not prepared.held_out_ids:
            return None
        config, turns, pusher = self._config, training.colocation, training.weight_sync

        async def served(manifest: WeightManifest) -> None:
            if config.colocated:
                await pusher.wait_served(manifest)

        exams = training.online_evaluation = OnlineEvaluator(
            run_dir=self._directory.path,
            schedule=EvaluationSchedule(config.evaluation.every_steps, config.run.steps),
            plan=self._evaluation_plan("", prepared),
            held_out_families=self._held_out_families,
            spec=self._evaluation_spec,
            scheduler=fleet.scheduler,
            evaluation_actors=fleet.evaluation_actors,
            wait_servable=served,
            newest_weights=lambda: None if turns.learner_active else pusher.newest,
            require_capacity=fleet.require_evaluation_capacity,
            checkpoints=training.checkpoints,
            events=self._events,
            own_engine=not config.colocated,
        )
        return exams

    @property
    def _evaluation_spec(self) -> EvaluationSpec:
        return make_run_spec(self._config, self._directory.run_id)

    def _evaluation_plan(self, name: str, prepared: PreparedRun) -> EvaluationPlan:
        told = self._config.evaluation
        return EvaluationPlan(name, prepared.held_out_ids, told.attempts, told.greedy_attempts, self._config.run.seed)

    async def _export_best(self, training: TrainingLoop) -> BestCheckpoint | None:
        """The best checkpoint, if one is to be kept, and its weights as a model's folder."""
        if not self._config.checkpoint.keep_best:
            return None
        return await export_best_checkpoint(
            self._directory.path, training.checkpoints, training.export_checkpoint, self._events
        )

    @property
    def _all_engines_timeout_s(self) -> float:
        """For every engine, also one that has to be started again and loaded twice."""
        engine = self._config.engine
        return engine.start_timeout_s + 2 * engine.update_timeout_s

    def _weight_sync_manager(self, fleet: ActorGroup, stand: RunStatePublisher) -> WeightSyncManager:
        """Engines that stood aside all come back at once: none of them serves meanwhile."""
        engine, share = self._config.engine, 1.0 if self._config.colocated else 0.5
        return WeightSyncManager(
            fleet.engines,
            stand,
            self._events,
            engine.update_timeout_s,
            share,
            engine.max_update_overhead,
            fleet.weight_transport,
        )

    def _colocation_manager(self, pusher: WeightSyncManager) -> ColocationManager:
        """An engine's lease begins anew with each call to the learner, between two of which a publication and a
        checkpoint may have to be written."""
        lease_s = 3 * self._config.learner.call_timeout_s
        return ColocationManager(
            colocated=self._config.colocated, weight_sync=pusher, lease_s=lease_s, timeout_s=self._all_engines_timeout_s
        )

    async def _parity_checker(self, prepared: PreparedRun) -> ParityChecker:
        config, every = self._config, self._config.stop.parity_every_steps
        settings = await asyncio.to_thread(make_probe_settings, config, prepared) if every else None
        dtypes = f"engine.dtype = '{config.engine.dtype}' and learner.dtype = '{config.learner.dtype}'"
        return ParityChecker(settings, every, ParityMonitor(config.parity_limit, dtypes), self._events)

    async def _evaluate(
        self, name: str, step: int, fleet: ActorGroup, prepared: PreparedRun, training: TrainingLoop
    ) -> None:
        """Evaluate the weights of ``step``, unless an earlier attempt of this run has done so, or has gone past it."""
        self._evaluated_steps[name] = step
        done = training.step != step or read_run_evaluation(self._directory.path, name, step) is not None
        if done or not prepared.held_out_ids:
            return
        self._enter_phase(f"eval_{name}", "")
        attempts = await self._find_online_attempts(step, training)
        if attempts is None:
            attempts = await fleet.scheduler.call(
                RolloutScheduler.run_evaluation, self._evaluation_plan(name, prepared)
            )
        spec = replace(self._evaluation_spec, name=name, step=step, version=training.version)
        write_run_evaluation(self._directory.path, spec, attempts)
        await asyncio.to_thread(training.checkpoints.record_score, step, score_attempts(attempts).pass_at_1)
        told = evaluation_headline(attempts, self._held_out_families)
        self._events.emit("eval.finished", name=name, step=step, **told)

    async def _find_online_attempts(self, step: int, training: TrainingLoop) -> Sequence[AttemptRecord] | None:
        """What an evaluation of these weights beside training came to, where there was one."""
        standing = await asyncio.to_thread(results_on_lineage, self._directory.path, training.lineage, training.version)
        return next((exam.attempts for exam in standing if exam.step == step), None)

    # -- pieces --------------------------------------------------------------------------------------------------

    @property
    def _held_out_families(self) -> tuple[str, ...]:
        family = self._config.data.held_out_family
        return (family,) if family else ()

    def _enter_phase(self, name: str, detail: str) -> None:
        self._events.emit("run.phase", phase=name, detail=detail)
        _log.info("phase", phase=name, detail=detail)

    def _emit_run_started(self, url: str) -> None:
        config = self._config
        self._events.emit(
            "run.started",
            run=self._directory.run_id,
            recipe=config.run.name,
            mode=config.run.mode.value,
            nodes=config.cluster.nodes,
            seed=config.run.seed,
            steps=config.run.steps,
            max_staleness=config.staleness.max_staleness,
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
        async with run_monitor_process(self._directory.path, port=self._config.monitor.port, log=log) as url:
            if not url:
                again = f"python -m launch.monitor {display_path(self._directory.path)}"
                self._console.print(
                    f"no live monitor ({display_path(log)} says why), and the run goes on without: {again}"
                )
            yield url

    @asynccontextmanager
    async def _nodes(self) -> AsyncGenerator[list[ClusterNode]]:
        cluster = self._config.cluster
        if cluster.address:
            source = join_cluster_nodes(
                cluster.address,
                cluster.nodes,
                cluster.node_wait_s,
                {RUN_TOKEN_VARIABLE: os.environ[RUN_TOKEN_VARIABLE]},
                self._report_alive_nodes,
            )
        else:
            if cluster.nodes > 1:
                self._console.print(f"no --address: {cluster.nodes} Ray nodes are simulated on this machine")
            source = start_local_nodes(cluster.nodes, self._temporary)
        with redirect_ray_log(self._directory.logs / "ray.log"):
            async with source as found:
                nodes = await self._check_nodes(found)
                for node in nodes:
                    self._events.emit("node.up", name=node.name, address=node.address)
                yield nodes

    def _emit_metrics_alert(self, text: str) -> None:
        self._events.emit("alert.raised", name="metrics", text=text)

    async def _check_nodes(self, nodes: list[ClusterNode]) -> list[ClusterNode]:
        """Those of a cluster, with the roles that they can have.  Raises UserError for what has to be mended first.
        Nodes that are simulated here are this machine, which has been looked at."""
        if not self._config.cluster.address:
            self._cluster = replace(self._cluster, own_processes=tuple(ray_head_processes(self._temporary)))
            return nodes
        asked = await asyncio.to_thread(make_node_requirements, self._config)
        findings = await check_nodes(nodes, asked)
        able = restrict_roles(nodes, findings)
        for line in describe_findings(nodes, findings):
            self._console.print(line)
        self._cluster = replace(self._cluster, node_requirements=asked)
        return able

    async def _end_process_if_cluster_lost(self, work: Coroutine[Any, Any, None]) -> None:
        """``work``, and the end of this process at once where the cluster is lost: what Ray holds of the driver waits
        for it in vain, and the guardian ends the rest."""
        try:
            await work
        except ClusterLostError as error:
            self._events.emit("run.finished", ok=False, reason=str(error))
            resume = f"python -m launch.cluster {self._directory.resume_options}"
            line = f"error: {error}; nothing that was acknowledged is lost: go on with {resume}"
            self._console.print(line)
            JsonOutput.end_process(EXIT_FAILED, line)

    def _report_torn_checkpoint(self, aside: Path, why: str) -> None:
        self._events.emit("checkpoint.damaged", path=str(aside), why=why)
        self._console.print(f"passed over: the checkpoint {display_path(aside)} is damaged ({why})")

    def _report_alive_nodes(self, alive: int) -> None:
        self._console.print(f"{alive} of {self._config.cluster.nodes} Ray nodes alive")

    def _within_epochs(self, tasks: int) -> RunConfig:
        """The configuration with the steps that its epochs take, and a word about it."""
        config, epochs = self._config.limited_to_epochs(tasks), self._config.stop.after_epochs
        if config.run.steps < self._config.run.steps:
            groups = config.rollout.groups_per_step
            text = f"stop.after_epochs = {epochs}: {config.run.steps} steps of {groups} groups, for {tasks} tasks"
            self._events.emit("alert.raised", name="stop", text=text)
        return config

    def _training_settings(self) -> TrainingSettings:
        config = self._config
        return TrainingSettings(
            run_dir=self._directory.path,
            attempt=self._directory.attempt,
            steps=config.run.steps,
            groups_per_step=config.rollout.groups_per_step,
            max_staleness=config.staleness.max_staleness,
            stale_policy=config.staleness.policy,
            publish_every=config.publish_every,
            checkpoint_every=config.checkpoint.every_steps,
            stop=config.stop,
            group_size=config.rollout.group_size,
            nonfinite_limit=config.learner.nonfinite_limit,
            keeps_reference=config.kl.coefficient > 0,
        )

    async def _summary(
        self, books: JournalAccounting, seconds: float, stock: DockerInventory | None
    ) -> dict[str, JsonValue]:
        config, path = self._config, self._directory.path
        evaluations = {name: read_run_evaluation(path, name, step) for name, step in self._evaluated_steps.items()}
        facts = SummaryFacts(
            recipe=config.run.name,
            mode=config.run.mode.value,
            control=config.run.negative_control.value,
            nodes=config.cluster.nodes,
            placement=config.cluster.placement.value,
            seed=config.run.seed,
            max_staleness=config.staleness.max_staleness,
            seconds=seconds,
            evaluations={name: attempts for name, attempts in evaluations.items() if attempts is not None},
            online_evaluations=self._online_results,
            best=self._best,
            held_out_families=self._held_out_families,
            accounting=books,
            leaked=await count_leaks(stock, self._directory.run_id),
            finished=self._finished,
            ending=self._ending.value if self._ending is not None else "",
        )
        summary = summarise_run(path, facts)
        failed = list_failed_checks(facts, read_metrics(path))
        summary |= {"ok": not failed, "failed_checks": [*failed]}
        for line in failed:
            self._console.print(f"check failed: {line}")
        return orjson.loads(orjson.dumps(summary))
