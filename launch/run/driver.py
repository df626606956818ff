"""One run: nodes, actors, first weights, evaluation, training, evaluation, summary.

The driver starts the parts of a run and waits for them.  Everything it starts belongs to a context manager here, so
that any end takes it down in order: workers first (with their containers), then engines, learner and buffer, then Ray.
If the driver itself crashes, the process reaper ends the rest.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rich.console import Console

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.group import ActorGroup
from launch.checkpoints.store import Checkpoint, CheckpointStore
from launch.config import RunConfig
from launch.control.scheduler_state import SchedulerStateSender
from launch.data.preparation import PreparedRun, prepare_run
from launch.evaluation.held_out.held_out_evaluations import HeldOutEvaluations
from launch.processes.background_tasks import background_services
from launch.run.docker_leaks import find_leaks, take_inventory
from launch.run.ending import end_process_if_cluster_lost, report_end
from launch.run.first_weights import start_engines, start_engines_and_warm_up
from launch.run.nodes import RunNodes, run_nodes
from launch.run.results import RunOutcome, make_summary, write_results
from launch.run.run_classes import RunClasses
from launch.run.services import export_progress, restore_pause, serve_monitor, watch_services
from launch.run.training_setup import Training, all_engines_timeout_s, start_training
from launch.run_records.run_context import RunContext
from launch.run_records.run_directory import RunDirectory
from protocol.events import EventLog, JsonValue
from protocol.journal.repair import require_journal
from protocol.processes.stack_dumps import register_stack_dump
from protocol.weights import WeightManifest


class Driver:
    """Runs one training run from its nodes to its summary, and takes down all that it started."""

    def __init__(
        self, config: RunConfig, directory: RunDirectory, temporary: Path, console: Console, classes: RunClasses
    ) -> None:
        events = EventLog(directory.path, f"driver-{directory.start_number}", "node-0")
        self._run, self._temporary = RunContext(config, directory, events, console), temporary
        self._classes = classes
        self._started_at = time.time()

    async def run(self, *, resume: bool) -> dict[str, JsonValue]:
        """Run from the start or from the newest checkpoint, and return the summary.  Cancelling it stops the run in
        order."""
        run, started_at = self._run, time.monotonic()
        inventory_before = await take_inventory()
        async with serve_monitor(run) as url:
            run.report_started(url)
            async with export_progress(run):
                with report_end(run):
                    async with run_nodes(run, self._temporary, has_docker=inventory_before is not None) as nodes:
                        outcome = await self._run_phases(nodes, resume=resume)
        leaks = await find_leaks(inventory_before, run.directory.run_id)
        if leaks.of_others:
            run.console.print(
                f"remark: during the run {len(leaks.of_others)} containers, networks or volumes without a run's label "
                "appeared on the Docker engine: they are others' and do not count"
            )
        return make_summary(run, outcome, seconds=time.monotonic() - started_at, leaks=leaks)

    def write_results(self, summary: dict[str, JsonValue]) -> None:
        """Write the summary and the report."""
        write_results(self._run, summary)

    async def _run_phases(self, nodes: RunNodes, *, resume: bool) -> RunOutcome:
        run = self._run
        register_stack_dump(run.directory.logs / "driver.stacks", "driver")
        checkpoints = self._classes.checkpoint_store(
            run.directory.path, run.config.checkpoint, run.report_torn_checkpoint
        )
        checkpoint = await self._find_checkpoint(checkpoints) if resume else None
        prepared = await self._prepare(checkpoint)
        actors = self._make_actor_group(nodes, prepared)
        async with actors.running():
            scheduler_state = SchedulerStateSender(actors.scheduler)
            paused = restore_pause(run, scheduler_state)
            training = await start_training(run, actors, prepared, checkpoints, scheduler_state, paused=paused)
            evaluations = self._make_evaluations(actors, training, prepared)
            weight_sync, recovery = training.weight_sync, training.loop.recovery
            first_weights = await recovery.retry_with_new_learners(
                training.loop.writer.publish if checkpoint is None else lambda: recovery.resume_from(checkpoint)
            )
            async with background_services(
                end_process_if_cluster_lost(
                    actors.supervise(lambda: weight_sync.weights_to_start, weight_sync.remove_engine), run
                ),
                weight_sync.run(),
                scheduler_state.repeat_state(),
                actors.scheduler.call(RolloutScheduler.run),
                *watch_services(run, actors, training, self._started_at),
            ):
                if checkpoint is None:
                    await start_engines_and_warm_up(run, actors, training, prepared, first_weights)
                else:
                    await start_engines(run, actors, training, first_weights)
                await evaluations.evaluate_before()
                await self._train(actors, training, evaluations, None if checkpoint is None else first_weights)
                await evaluations.evaluate_after()
                results = await evaluations.finish()
                accounting = await actors.buffer.call(TrajectoryBuffer.accounting)
        run.enter_phase("shutdown", "stopping Ray")
        return RunOutcome(accounting, results, training.loop.state.stop_reason)

    async def _find_checkpoint(self, checkpoints: CheckpointStore) -> Checkpoint | None:
        """Return the newest intact checkpoint.  Raises UserError if the run has no journal for it."""
        checkpoint = await asyncio.to_thread(checkpoints.newest_intact)
        if checkpoint is not None:
            require_journal(self._run.directory.path)
        return checkpoint

    async def _prepare(self, checkpoint: Checkpoint | None) -> PreparedRun:
        """Build the model and load the tasks."""
        run = self._run
        run.enter_phase("model", "building the model and the tasks")
        prepared = await asyncio.to_thread(prepare_run, run.config, run.directory.path)
        for problem in prepared.problems:
            run.console.print(f"left out: {problem}")
        for notice in prepared.notices:
            run.console.print(f"warning: {notice}")
        run.limit_to_epochs(len(prepared.training_ids))
        if prepared.warm_started and run.config.warm_start.enabled and checkpoint is None:
            run.console.print(f"warm start: taken from an earlier run of the same model ({prepared.model_path})")
        return prepared

    def _make_actor_group(self, nodes: RunNodes, prepared: PreparedRun) -> ActorGroup:
        return ActorGroup(
            self._run.config,
            self._run.directory,
            nodes.nodes,
            self._run.events,
            model_path=prepared.model_path,
            tasks=prepared.tasks,
            training_ids=prepared.training_ids,
            classes=self._classes,
            cluster=nodes.cluster,
        )

    def _make_evaluations(self, actors: ActorGroup, training: Training, prepared: PreparedRun) -> HeldOutEvaluations:
        return HeldOutEvaluations(
            run=self._run,
            held_out_ids=prepared.held_out_ids,
            scheduler=actors.scheduler,
            weights=training.loop,
            learner=training.loop.learner,
            weight_sync=training.weight_sync,
            checkpoints=training.checkpoints,
            online=training.online_evaluation,
        )

    async def _train(
        self,
        actors: ActorGroup,
        training: Training,
        evaluations: HeldOutEvaluations,
        resumed_weights: WeightManifest | None,
    ) -> None:
        """Train to the end with online evaluations, and wait until every engine serves the last weights."""
        run, weight_sync = self._run, training.weight_sync
        run.enter_phase("training")
        served = weight_sync.served
        async with evaluations.run_during_training(resumed_weights):
            await training.scheduler_state.start_training(served.step if served else training.loop.step)
            await training.loop.run()
            await training.scheduler_state.end_training()
            await actors.workers.cancel_training()
            await training.online_evaluation.wait_idle()
        await weight_sync.wait_newest_served(all_engines_timeout_s(run.config))
        await actors.buffer.call(TrajectoryBuffer.end_run)
