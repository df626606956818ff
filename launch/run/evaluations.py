"""The evaluations of a run on held-out tasks before, during and after training, and the best checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.group import ActorGroup
from launch.checkpoints.best_checkpoint import BestCheckpoint, export_best_checkpoint
from launch.data.preparation import PreparedRun
from launch.evaluation.online.online_evaluator import NoOnlineEvaluation
from launch.evaluation.online.run_evaluations import (
    AFTER,
    BEFORE,
    OnlineEvaluationResult,
    read_reusable_evaluation,
    read_run_evaluation,
    results_on_lineage,
    spec_of_weights,
    write_run_evaluation,
)
from launch.evaluation.scores import evaluation_headline, score_attempts
from launch.processes.background_tasks import background_services
from launch.run.context import RunContext
from launch.run.evaluation_setup import evaluation_plan, evaluation_spec
from launch.run.training_setup import Training
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
    def __init__(self, run: RunContext, actors: ActorGroup, training: Training, prepared: PreparedRun) -> None:
        self._run, self._actors, self._training = run, actors, training
        self._held_out_ids = prepared.held_out_ids

    async def evaluate_before(self) -> None:
        """Evaluate the weights that training starts from, unless the configuration disables it."""
        if self._run.config.evaluation.before_training:
            await self._evaluate(BEFORE, 0)

    async def evaluate_after(self) -> None:
        """Evaluate the last weights."""
        await self._evaluate(AFTER, self._training.loop.step)

    async def _evaluate(self, name: str, step: int) -> None:
        """Evaluate the weights of ``step``, unless an earlier attempt of the run has evaluated or passed them."""
        run, training = self._run, self._training
        is_done = training.loop.step != step or read_run_evaluation(run.directory.path, name, step) is not None
        weights = training.weight_sync.newest
        if is_done or not self._held_out_ids or weights is None:
            return
        run.enter_phase(f"evaluation_{name}")
        attempts = await self._find_finished_attempts(name, weights)
        if attempts is None:
            attempts = await self._actors.scheduler.call(
                RolloutScheduler.run_evaluation, evaluation_plan(run, self._held_out_ids, name)
            )
        write_run_evaluation(run.directory.path, spec_of_weights(evaluation_spec(run), name, weights), attempts)
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
        return await asyncio.to_thread(
            results_on_lineage, self._run.directory.path, training.loop.lineage, training.loop.version
        )

    @asynccontextmanager
    async def run_during_training(self, resumed_weights: WeightManifest | None) -> AsyncGenerator[None]:
        """Run the evaluations that become due while the context is open; does nothing if no task is held out.
        ``resumed_weights`` are those that a resumed run continues with."""
        loop, evaluator = self._training.loop, self._training.online_evaluation
        if isinstance(evaluator, NoOnlineEvaluation):
            yield
            return
        async with background_services(evaluator.run()):
            if resumed_weights is not None:
                await evaluator.resume(loop.lineage, loop.version)
                await evaluator.on_published(resumed_weights)
            yield

    async def finish(self) -> EvaluationResults:
        """Export the best checkpoint, if one is kept, and return all results.  After training."""
        run, training, path = self._run, self._training, self._run.directory.path
        best = None
        if run.config.checkpoint.keep_best:
            best = await export_best_checkpoint(path, training.checkpoints, training.loop.export_checkpoint, run.events)
        steps = {AFTER: training.loop.step}
        if run.config.evaluation.before_training:
            steps = {BEFORE: 0, **steps}
        read = {name: read_run_evaluation(path, name, step) for name, step in steps.items()}
        attempts = {name: found for name, found in read.items() if found is not None}
        return EvaluationResults(attempts, await self._online_results(), best)
