"""Builds the training loop of a run, and what brings its weights to the engines."""

from __future__ import annotations

import asyncio

from launch.actor_group.group import ActorGroup
from launch.checkpoints.store import CheckpointStore
from launch.config import RunConfig
from launch.control.run_state import RunStatePublisher
from launch.control.step_hooks import StepHooks
from launch.data.preparation import PreparedRun
from launch.run.context import RunContext
from launch.run_records.metrics_log import MetricsLog
from launch.run_records.run_directory import RunDirectory
from launch.training.logprob_parity import ParityMonitor
from launch.training.loop import TrainingLoop
from launch.training.parity_checker import ParityChecker
from launch.training.parity_probe import make_probe_settings
from launch.training.state import TrainingSettings
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from protocol.events import EventLog


async def make_training_loop(
    run: RunContext,
    actors: ActorGroup,
    prepared: PreparedRun,
    checkpoints: CheckpointStore,
    run_state: RunStatePublisher,
    *,
    paused: bool,
) -> TrainingLoop:
    """Start the learner and build the training loop around it."""
    config, weight_sync = run.config, make_weight_sync(run.config, actors, run_state, run.events)
    return TrainingLoop(
        settings=training_settings(config, run.directory),
        learners=await actors.learners.start(),
        start_learners=actors.learners.start,
        buffer=actors.buffer,
        scheduler=actors.scheduler,
        weight_sync=weight_sync,
        colocation=make_colocation(config, weight_sync),
        checkpoints=checkpoints,
        metrics=MetricsLog(run.directory.path),
        events=run.events,
        parity=await make_parity_checker(config, prepared, run.events),
        step_hooks=StepHooks(paused=paused),
        sampled_tokens=actors.engines.sampled_tokens,
    )


def training_settings(config: RunConfig, directory: RunDirectory) -> TrainingSettings:
    """Return the part of the configuration that the loop reads."""
    return TrainingSettings(
        run_dir=directory.path,
        attempt=directory.attempt,
        steps=config.run.steps,
        groups_per_step=config.rollout.groups_per_step,
        group_size=config.rollout.group_size,
        max_staleness=config.staleness.max_staleness,
        stale_policy=config.staleness.policy,
        publish_every=config.publish_every,
        checkpoint_every=config.checkpoint.every_steps,
        stop=config.stop,
        nonfinite_limit=config.learner.nonfinite_limit,
        keeps_reference=config.kl.coefficient > 0,
    )


def all_engines_timeout_s(config: RunConfig) -> float:
    """Return the longest wait for every engine, including one that has to be restarted and updated twice."""
    return config.engine.start_timeout_s + 2 * config.engine.update_timeout_s


def make_weight_sync(
    config: RunConfig, actors: ActorGroup, run_state: RunStatePublisher, events: EventLog
) -> WeightSyncManager:
    """Build the weight sync.  Colocated engines are all updated at once, because none of them serves meanwhile."""
    return WeightSyncManager(
        actors.engines.engines,
        run_state,
        events,
        config.engine.update_timeout_s,
        1.0 if config.colocated else 0.5,
        config.engine.max_update_overhead,
        actors.engines.transport,
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


async def make_parity_checker(config: RunConfig, prepared: PreparedRun, events: EventLog) -> ParityChecker:
    """Build the check that learner and engines agree on log-probabilities."""
    every_steps = config.stop.parity_every_steps
    settings = await asyncio.to_thread(make_probe_settings, config, prepared) if every_steps else None
    dtypes = f"engine.dtype = '{config.engine.dtype}' and learner.dtype = '{config.learner.dtype}'"
    return ParityChecker(settings, every_steps, ParityMonitor(config.parity_limit, dtypes), events)
