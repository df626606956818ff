"""The evaluations of a run on held-out tasks before, during and after training, and the best checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from actors.scheduler.evaluation import EvaluationPlan
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.group import ActorGroup
from launch.checkpoints.best_checkpoint import BestCheckpoint, export_best_checkpoint
from launch.data.preparation import PreparedRun
from launch.evaluation.online.online_evaluator import OnlineEvaluator
from launch.evaluation.online.run_evaluations import (
    AFTER,
    BEFORE,
    OnlineEvaluationResult,
    make_run_spec,
    read_reusable_evaluation,
    read_run_evaluation,
    results_on_lineage,
    spec_of_weights,
    write_run_evaluation,
)
from launch.evaluation.online.schedule import EvaluationSchedule
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.evaluation.scores import evaluation_headline, score_attempts
from launch.processes.background_tasks import background_services
from launch.run.context import RunContext
from launch.training.loop import TrainingLoop
from protocol.evaluation import AttemptRecord
from protocol.weights import WeightManifest


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """The results of all evaluations of a run."""

    attempts: Mapping[str, Sequence[AttemptRecord]] = field(default_factory=dict[str, Sequence[AttemptRecord]])
    """``before`` and ``after``, if they ran."""
    online: Sequence[OnlineEvaluationResult] = ()
    """Online evaluations in the order of their steps."""
    best: BestCheckpoint | None = None


class RunEvaluations:
    def __init__(self, run: RunContext, actors: ActorGroup, training: TrainingLoop, prepared: PreparedRun) -> None:
        self._run, self._actors, self._training = run, actors, training
        self._held_out_ids = prepared.held_out_ids

    async def evaluate_before(self) -> None:
        """Evaluate the weights that training starts from, unless the configuration disables it."""
        if self._run.config.evaluation.before_training:
            await self._evaluate(BEFORE, 0)

    async def evaluate_after(self) -> None:
        """Evaluate the last weights."""
        await self._evaluate(AFTER, self._training.step)

    async def _evaluate(self, name: str, step: int) -> None:
        """Evaluate the weights of ``step``, unless an earlier attempt of the run has evaluated or passed them."""
        run, training = self._run, self._training
        is_done = training.step != step or read_run_evaluation(run.directory.path, name, step) is not None
        weights = training.weight_sync.newest
        if is_done or not self._held_out_ids or weights is None:
            return
        run.enter_phase(f"evaluation_{name}")
        attempts = await self._find_finished_attempts(name, weights)
        if attempts is None:
            attempts = await self._actors.scheduler.call(RolloutScheduler.run_evaluation, self._plan(name))
        write_run_evaluation(run.directory.path, spec_of_weights(self._spec, name, weights), attempts)
        await asyncio.to_thread(training.checkpoints.record_score, step, score_attempts(attempts).pass_at_1)
        headline = evaluation_headline(attempts, run.held_out_families)
        run.events.emit("evaluation.finished", name=name, step=step, **headline)

    async def _find_finished_attempts(self, name: str, weights: WeightManifest) -> Sequence[AttemptRecord] | None:
        """Return the attempts of an online evaluation of these weights or, before training, of another run's."""
        if name == BEFORE and (source := self._run.config.evaluation.before_from) is not None:
            return await asyncio.to_thread(read_reusable_evaluation, source, weights.sha256)
        return next((each.attempts for each in await self._online_results() if each.step == weights.step), None)

    async def _online_results(self) -> Sequence[OnlineEvaluationResult]:
        training = self._training
        return await asyncio.to_thread(results_on_lineage, self._run.directory.path, training.lineage, training.version)

    @property
    def _spec(self) -> EvaluationSpec:
        return make_run_spec(self._run.config, self._run.directory.run_id)

    def _plan(self, name: str) -> EvaluationPlan:
        evaluation = self._run.config.evaluation
        return EvaluationPlan(
            name, self._held_out_ids, evaluation.attempts, evaluation.greedy_attempts, self._run.config.run.seed
        )

    @asynccontextmanager
    async def run_during_training(self, resumed_weights: WeightManifest | None) -> AsyncGenerator[None]:
        """Run the evaluations that become due while the context is open; does nothing if no task is held out.
        ``resumed_weights`` are those that a resumed run continues with."""
        if not self._held_out_ids:
            yield
            return
        training = self._training
        evaluator = training.online_evaluation = self._make_online_evaluator()
        async with background_services(evaluator.run()):
            if resumed_weights is not None:
                await evaluator.resume(training.lineage, training.version)
                await evaluator.on_published(resumed_weights)
            yield

    def _make_online_evaluator(self) -> OnlineEvaluator:
        run, config, training = self._run, self._run.config, self._training
        colocation, weight_sync = training.colocation, training.weight_sync

        async def wait_servable(manifest: WeightManifest) -> None:
            if config.colocated:
                await weight_sync.wait_served(manifest)

        return OnlineEvaluator(
            run_dir=run.directory.path,
            schedule=EvaluationSchedule(config.evaluation.every_steps, config.run.steps),
            plan=self._plan(""),
            held_out_families=run.held_out_families,
            spec=self._spec,
            scheduler=self._actors.scheduler,
            evaluation_actors=self._actors.evaluation.running,
            wait_servable=wait_servable,
            newest_weights=lambda: None if colocation.learner_active else weight_sync.newest,
            require_capacity=self._actors.evaluation.require_capacity,
            checkpoints=training.checkpoints,
            events=run.events,
            own_engine=not config.colocated,
        )

    async def finish(self) -> EvaluationResults:
        """Export the best checkpoint, if one is kept, and return all results.  After training."""
        run, training, path = self._run, self._training, self._run.directory.path
        best = None
        if run.config.checkpoint.keep_best:
            best = await export_best_checkpoint(path, training.checkpoints, training.export_checkpoint, run.events)
        steps = {AFTER: training.step}
        if run.config.evaluation.before_training:
            steps = {BEFORE: 0, **steps}
        read = {name: read_run_evaluation(path, name, step) for name, step in steps.items()}
        attempts = {name: found for name, found in read.items() if found is not None}
        return EvaluationResults(attempts, await self._online_results(), best)
