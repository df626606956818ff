"""The evaluations of a run on its held-out tasks before, during and after training, and the best checkpoint by them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from actors.runtime.remote import Remote
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.checkpoints.best_checkpoint import BestCheckpoint, ExportLearner, export_best_checkpoint
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.held_out.evaluation_setup import evaluation_plan, evaluation_spec
from launch.evaluation.held_out.evaluation_store import (
    AFTER,
    BEFORE,
    OnlineEvaluationResult,
    read_reusable_evaluation,
    read_run_evaluation,
    results_on_lineage,
    spec_of_weights,
    write_run_evaluation,
)
from launch.evaluation.held_out.online_evaluator import NoOnlineEvaluation, OnlineEvaluator
from launch.evaluation.scores import evaluation_headline, score_attempts
from launch.processes.background_tasks import background_services
from launch.run_records.run_context import RunContext
from launch.weight_sync.manager import WeightSyncManager
from protocol.evaluation import AttemptRecord
from protocol.weights import Lineage, WeightManifest, WeightVersion


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """The results of all evaluations of a run."""

    attempts: Mapping[str, Sequence[AttemptRecord]] = field(default_factory=dict[str, Sequence[AttemptRecord]])
    """``before`` and ``after``, if they ran."""
    online: Sequence[OnlineEvaluationResult] = ()
    """Online evaluations in the order of their steps."""
    best: BestCheckpoint | None = None


class TrainedWeights(Protocol):
    """The part of the training loop that evaluations read."""

    @property
    def step(self) -> int: ...
    @property
    def version(self) -> WeightVersion: ...
    @property
    def lineage(self) -> Lineage: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutEvaluations:
    run: RunContext
    held_out_ids: Sequence[str]
    scheduler: Remote[RolloutScheduler]
    weights: TrainedWeights
    learner: ExportLearner
    weight_sync: WeightSyncManager
    checkpoints: CheckpointStore
    online: OnlineEvaluator | NoOnlineEvaluation
    """The evaluations during training."""

    async def evaluate_before(self) -> None:
        """Evaluate the weights that training starts from, unless the configuration disables it."""
        if self.run.config.evaluation.before_training:
            await self._evaluate(BEFORE, 0)

    async def evaluate_after(self) -> None:
        """Evaluate the last weights."""
        await self._evaluate(AFTER, self.weights.step)

    async def _evaluate(self, name: str, step: int) -> None:
        """Evaluate the weights of ``step``, unless an earlier attempt of the run has evaluated or passed them."""
        run = self.run
        is_done = self.weights.step != step or read_run_evaluation(run.directory.path, name, step) is not None
        newest = self.weight_sync.newest
        if is_done or not self.held_out_ids or newest is None:
            return
        run.enter_phase(f"evaluation_{name}")
        attempts = await self._find_finished_attempts(name, newest)
        if attempts is None:
            attempts = await self.scheduler.call(
                RolloutScheduler.run_evaluation, evaluation_plan(run, self.held_out_ids, name)
            )
        if not attempts:  # no task can run, which an alert has said
            return
        write_run_evaluation(run.directory.path, spec_of_weights(evaluation_spec(run), name, newest), attempts)
        await asyncio.to_thread(self.checkpoints.record_score, step, score_attempts(attempts).pass_at_1)
        headline = evaluation_headline(attempts, run.held_out_families)
        run.events.emit("evaluation.finished", name=name, step=step, **headline)

    async def _find_finished_attempts(self, name: str, weights: WeightManifest) -> Sequence[AttemptRecord] | None:
        """Return the attempts of an online evaluation of these weights or, before training, of another run's."""
        if name == BEFORE and (source := self.run.config.evaluation.before_from) is not None:
            return await asyncio.to_thread(read_reusable_evaluation, source, weights.sha256)
        return next((each.attempts for each in await self._online_results() if each.step == weights.step), None)

    async def _online_results(self) -> Sequence[OnlineEvaluationResult]:
        weights = self.weights
        return await asyncio.to_thread(results_on_lineage, self.run.directory.path, weights.lineage, weights.version)

    @asynccontextmanager
    async def run_during_training(self, resumed_weights: WeightManifest | None) -> AsyncGenerator[None]:
        """Run the evaluations that become due while the context is open; does nothing if no task is held out.
        ``resumed_weights`` are those that a resumed run continues with."""
        online = self.online
        if isinstance(online, NoOnlineEvaluation):
            yield
            return
        async with background_services(online.run()):
            if resumed_weights is not None:
                await online.resume(self.weights.lineage, self.weights.version)
                await online.on_published(resumed_weights)
            yield

    async def finish(self) -> EvaluationResults:
        """Export the best checkpoint, if one is kept, and return all results.  After training."""
        run, path, best = self.run, self.run.directory.path, None
        if run.config.checkpoint.keep_best:
            best = await export_best_checkpoint(path, self.checkpoints, self.learner, run.events)
        steps = {AFTER: self.weights.step}
        if run.config.evaluation.before_training:
            steps = {BEFORE: 0, **steps}
        read = {name: read_run_evaluation(path, name, step) for name, step in steps.items()}
        attempts = {name: found for name, found in read.items() if found is not None}
        return EvaluationResults(attempts, await self._online_results(), best)
