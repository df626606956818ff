"""Brings the first weights to the engines: the warm start of a new run, or the weights of a checkpoint."""

from __future__ import annotations

import asyncio

from launch.actor_group.group import ActorGroup
from launch.data.preparation import PreparedRun
from launch.data.warm_start import run_warm_start
from launch.run.training_setup import Training, all_engines_timeout_s
from launch.run_records.run_context import RunContext
from protocol.weights import WeightManifest


async def start_engines(run: RunContext, actors: ActorGroup, training: Training, weights: WeightManifest) -> None:
    """Start the engines on ``weights``."""
    run.enter_phase("engine", "starting SGLang")
    await actors.engines.start(weights)
    training.weight_sync.set_served(weights)


async def start_engines_and_warm_up(
    run: RunContext, actors: ActorGroup, training: Training, prepared: PreparedRun, initial: WeightManifest
) -> None:
    """Warm up the model, checkpoint it as step 0 and serve it.  Engines start on the ``initial`` weights meanwhile; on
    a colocated device they start afterwards."""

    async def warm_up() -> WeightManifest:
        if run.config.warm_start.enabled and not prepared.warm_started:
            data = ", ".join(map(str, run.config.warm_start.data))
            run.enter_phase("warm_start", f"supervised training on {data or 'scripted demonstrations'}")
            await run_warm_start(run.config, training.loop.learner.ranks, prepared, run.events)
        return await training.loop.recovery.publish_initial_weights()

    if run.config.colocated:
        warm = await training.loop.recovery.retry_with_new_learners(warm_up)
        await start_engines(run, actors, training, warm)
        return
    async with asyncio.TaskGroup() as group:
        engines = group.create_task(actors.engines.start(initial))
        warm = await training.loop.recovery.retry_with_new_learners(warm_up)
        if not engines.done():
            run.enter_phase("engine", "starting SGLang")
    training.weight_sync.set_served(initial)
    await training.weight_sync.set_newest(warm)
    await training.weight_sync.wait_newest_served(all_engines_timeout_s(run.config))
