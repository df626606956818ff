"""Starts the learner and builds the training loop of a run around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.group import ActorGroup
from launch.checkpoints.manager import CheckpointManager
from launch.checkpoints.store import CheckpointStore
from launch.config import RunConfig
from launch.control.scheduler_state import SchedulerStateSender
from launch.control.step_hooks import StepHooks
from launch.data.preparation import PreparedRun
from launch.evaluation.held_out.evaluation_setup import make_online_evaluator
from launch.evaluation.held_out.online_evaluator import EvaluationHooks, NoOnlineEvaluation, OnlineEvaluator
from launch.run_records.metrics_log import MetricsLog
from launch.run_records.run_context import RunContext
from launch.training.batch_leasing import BatchLeaser
from launch.training.learner_client import LearnerClient
from launch.training.logprob_parity import ParityMonitor
from launch.training.loop import TrainingLoop
from launch.training.parity_checker import ParityChecker
from launch.training.parity_samples import make_parity_sample_settings
from launch.training.recovery import TrainingRecovery
from launch.training.skipped_batches import SkippedBatches
from launch.training.state import TrainingState
from launch.training.state_writer import StateWriter
from launch.training.step_recorder import StepRecorder
from launch.training.stop_conditions import StopConditions
from launch.training.weight_publisher import WeightPublisher
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from protocol.activity import ActivityLog
from protocol.events import EventLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training loop, and what a run starts, steers and asks beside it."""

    loop: TrainingLoop
    weight_sync: WeightSyncManager
    checkpoints: CheckpointStore
    online_evaluation: OnlineEvaluator | NoOnlineEvaluation
    scheduler_state: SchedulerStateSender
    step_hooks: StepHooks


async def start_training(
    run: RunContext,
    actors: ActorGroup,
    prepared: PreparedRun,
    checkpoints: CheckpointStore,
    scheduler_state: SchedulerStateSender,
    *,
    paused: bool,
) -> Training:
    """Start the learner and build the training loop."""
    weight_sync = make_weight_sync(run.config, actors, scheduler_state, run.events)
    colocation, step_hooks = make_colocation(run.config, weight_sync), StepHooks(paused=paused)
    evaluation = make_online_evaluator(run, actors, prepared.held_out_ids, colocation, checkpoints)
    learner = LearnerClient(
        ranks=await actors.learners.start(),
        start_ranks=actors.learners.start,
        colocation=colocation,
        online_evaluation=evaluation,
    )
    return Training(
        loop=build_training_loop(
            TrainingState(run.config, run.directory.path, run.directory.start_number),
            learner,
            weight_sync,
            await _make_parity_checker(run, prepared, learner, weight_sync),
            buffer=actors.buffer,
            scheduler=actors.scheduler,
            scheduler_state=scheduler_state,
            checkpoints=checkpoints,
            online_evaluation=evaluation,
            step_hooks=step_hooks,
            sampled_tokens=actors.engines.sampled_tokens,
            judge_tokens=actors.engines.judge_tokens,
            events=run.events,
        ),
        weight_sync=weight_sync,
        checkpoints=checkpoints,
        online_evaluation=evaluation,
        scheduler_state=scheduler_state,
        step_hooks=step_hooks,
    )


def build_training_loop(
    state: TrainingState,
    learner: LearnerClient,
    weight_sync: WeightSyncManager,
    parity: ParityChecker,
    *,
    buffer: Remote[TrajectoryBuffer],
    scheduler: Remote[RolloutScheduler],
    scheduler_state: SchedulerStateSender,
    checkpoints: CheckpointStore,
    online_evaluation: EvaluationHooks,
    step_hooks: StepHooks,
    sampled_tokens: Callable[[], Awaitable[int]],
    judge_tokens: Callable[[], Awaitable[int | None]],
    events: EventLog,
) -> TrainingLoop:
    """Build the loop and its parts around ``learner``.  ``sampled_tokens`` returns what the engines have sampled,
    ``judge_tokens`` what those of the run's own judge have."""
    activity = ActivityLog(state.run_dir, "learner", "learner")
    recorder = StepRecorder(
        run_dir=state.run_dir,
        metrics=MetricsLog(state.run_dir),
        events=events,
        buffer=buffer,
        weight_sync=weight_sync,
        parity=parity,
        online_evaluation=online_evaluation,
        sampled_tokens=sampled_tokens,
        judge_tokens=judge_tokens,
    )
    writer = StateWriter(
        state=state,
        learner=learner,
        publisher=WeightPublisher(
            state=state, weight_sync=weight_sync, events=events, activity=activity, learner=learner
        ),
        checkpoint_manager=CheckpointManager(
            start_number=state.start_number,
            store=checkpoints,
            buffer=buffer,
            events=events,
            learners=lambda: learner.ranks,
        ),
        weight_sync=weight_sync,
        online_evaluation=online_evaluation,
        activity=activity,
    )
    stop_conditions = StopConditions(state=state, buffer=buffer, step_hooks=step_hooks, sampled_tokens=sampled_tokens)
    return TrainingLoop(
        state=state,
        buffer=buffer,
        learner=learner,
        leaser=BatchLeaser(
            state=state,
            buffer=buffer,
            scheduler=scheduler,
            writer=writer,
            recorder=recorder,
            parity=parity,
            step_hooks=step_hooks,
            stop_conditions=stop_conditions,
            events=events,
            activity=activity,
        ),
        writer=writer,
        recorder=recorder,
        parity=parity,
        skipped=SkippedBatches(state=state, buffer=buffer, events=events),
        recovery=TrainingRecovery(
            state=state,
            learner=learner,
            writer=writer,
            checkpoints=checkpoints,
            buffer=buffer,
            recorder=recorder,
            parity=parity,
            events=events,
            online_evaluation=online_evaluation,
            scheduler_state=scheduler_state,
        ),
        scheduler_state=scheduler_state,
        activity=activity,
    )


def all_engines_timeout_s(config: RunConfig) -> float:
    """Return the longest wait for every engine, including one that has to be restarted and updated twice."""
    return config.engine.start_timeout_s + 2 * config.engine.update_timeout_s


def make_weight_sync(
    config: RunConfig, actors: ActorGroup, scheduler_state: SchedulerStateSender, events: EventLog
) -> WeightSyncManager:
    """Build the weight sync.  Colocated engines are all updated at once, because none of them serves meanwhile."""
    return WeightSyncManager(
        engines=actors.engines.engines,
        report_served=scheduler_state.set_served_step,
        events=events,
        update_timeout_s=config.engine.update_timeout_s,
        max_updating_share=1.0 if config.colocated else 0.5,
        max_update_overhead=config.engine.max_update_overhead,
        transport=actors.engines.transport,
    )


def make_colocation(config: RunConfig, weight_sync: WeightSyncManager) -> ColocationManager:
    """Build the colocation.  Each call to the learner renews the engines' leases; a publication and a checkpoint may
    have to be written between two calls."""
    return ColocationManager(
        colocated=config.colocated,
        weight_sync=weight_sync,
        lease_s=3 * config.learner.call_timeout_s,
        timeout_s=all_engines_timeout_s(config),
    )


async def _make_parity_checker(
    run: RunContext, prepared: PreparedRun, learner: LearnerClient, weight_sync: WeightSyncManager
) -> ParityChecker:
    """Build the check that learner and engines agree on log-probabilities."""
    config = run.config
    every_steps = config.parity.every_steps
    settings = await asyncio.to_thread(make_parity_sample_settings, config, prepared) if every_steps else None
    dtypes = f"engine.dtype = '{config.engine.dtype}' and learner.dtype = '{config.learner.dtype}'"
    monitor = ParityMonitor(config.parity_limit, dtypes)
    return ParityChecker(settings, every_steps, monitor, learner, weight_sync, run.events)
