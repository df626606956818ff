"""Builds the specification and the plan of a run's evaluations, and the evaluator beside training."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import orjson

from actors.rollout.policy import EVALUATION_TEMPERATURE
from actors.scheduler.evaluation.plan import EvaluationPlan
from launch.actor_group.group import ActorGroup
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.evaluation_options import score_settings
from launch.evaluation.held_out.evaluation_store import SOLVER
from launch.evaluation.held_out.online_evaluator import NoOnlineEvaluation, OnlineEvaluator
from launch.evaluation.held_out.schedule import EvaluationSchedule
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.run_records.run_context import RunContext
from launch.run_records.stored_config import flat_config
from launch.weight_sync.colocation import ColocationManager
from protocol.weights import WeightManifest

_TASK_KEYS = ("data.", "run.seed", "evaluation.tasks_per_family")
"""Configuration keys that a run's held-out tasks depend on; a final dot means the whole section."""


def evaluation_spec(run: RunContext) -> EvaluationSpec:
    """Return the specification of every evaluation of the run; each gets a name, step and version."""
    config, run_id = run.config, run.directory.run_id
    tasks = {key: value for key, value in flat_config(config).items() if key.startswith(_TASK_KEYS)}
    return EvaluationSpec(
        solver=SOLVER,
        model=run_id,
        temperature=EVALUATION_TEMPERATURE,
        seed=config.run.seed,
        prompt=config.agent.prompt_file,
        prompt_checksum=config.agent.make_spec().prompt.checksum,
        tasks=f"held out by {run_id}",
        tasks_checksum=hashlib.sha256(orjson.dumps(tasks, option=orjson.OPT_SORT_KEYS)).hexdigest(),
        recipe=score_settings(config),
    )


def evaluation_plan(run: RunContext, held_out_ids: Sequence[str], name: str) -> EvaluationPlan:
    """Return the plan of an evaluation of the held-out tasks."""
    evaluation = run.config.evaluation
    return EvaluationPlan(
        name, tuple(held_out_ids), evaluation.attempts, evaluation.greedy_attempts, run.config.run.seed
    )


def make_online_evaluator(
    run: RunContext,
    actors: ActorGroup,
    held_out_ids: Sequence[str],
    colocation: ColocationManager,
    checkpoints: CheckpointStore,
) -> OnlineEvaluator | NoOnlineEvaluation:
    """Build the evaluator beside training; without effect if no task is held out."""
    if not held_out_ids:
        return NoOnlineEvaluation()

    async def wait_servable(manifest: WeightManifest) -> None:
        if colocation.colocated:
            await colocation.weight_sync.wait_served(manifest)

    return OnlineEvaluator(
        run_dir=run.directory.path,
        schedule=EvaluationSchedule(run.config.evaluation.every_steps, run.config.run.steps),
        plan=evaluation_plan(run, held_out_ids, ""),
        held_out_families=run.held_out_families,
        spec=evaluation_spec(run),
        scheduler=actors.scheduler,
        evaluation_actors=actors.evaluation.running,
        wait_servable=wait_servable,
        newest_weights=lambda: None if colocation.learner_active else colocation.weight_sync.newest,
        require_capacity=actors.evaluation.require_capacity,
        checkpoints=checkpoints,
        events=run.events,
        own_engine=not colocation.colocated,
    )
