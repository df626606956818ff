"""Builds the evaluations of a run: what each has in common, and the one beside training."""

from __future__ import annotations

from collections.abc import Sequence

from actors.scheduler.evaluation import EvaluationPlan
from launch.actor_group.group import ActorGroup
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.online.online_evaluator import NoOnlineEvaluation, OnlineEvaluator
from launch.evaluation.online.run_evaluations import make_run_spec
from launch.evaluation.online.schedule import EvaluationSchedule
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.run.context import RunContext
from launch.weight_sync.colocation import ColocationManager
from protocol.weights import WeightManifest


def evaluation_spec(run: RunContext) -> EvaluationSpec:
    """Return the specification of every evaluation of the run; each gets a name, step and version."""
    return make_run_spec(run.config, run.directory.run_id)


def evaluation_plan(run: RunContext, held_out_ids: Sequence[str], name: str) -> EvaluationPlan:
    """Return the plan of an evaluation of the held-out tasks."""
    evaluation = run.config.evaluation
    return EvaluationPlan(
        name, tuple(held_out_ids), evaluation.attempts, evaluation.greedy_attempts, run.config.run.seed
    )


def make_online_evaluation(
    run: RunContext,
    actors: ActorGroup,
    held_out_ids: Sequence[str],
    colocation: ColocationManager,
    checkpoints: CheckpointStore,
) -> OnlineEvaluator | NoOnlineEvaluation:
    """Build the evaluation beside training; none if no task is held out."""
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
