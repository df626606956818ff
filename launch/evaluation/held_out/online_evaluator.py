"""Runs online evaluations without delaying training.

Training reports the weights that it has published (:meth:`OnlineEvaluator.on_published`) and continues.  Those that are
due (:mod:`.schedule`) are kept (:mod:`.evaluation_store`) and evaluated one after the other by an engine and a worker
that exist only for that evaluation (:class:`launch.actor_group.evaluation_actors.EvaluationActors`): no training engine
keeps old weights for it, and no training episode waits for a sandbox.  If learner and engine share a device, which has
no memory for a second server, the training engine serves these weights until the learner's next step, which waits for
the end (:meth:`OnlineEvaluator.wait_idle`).

A person may request an evaluation of the newest weights (:meth:`OnlineEvaluator.request_evaluation`) and learns at once
whether it starts.  Each evaluation that is due ends in exactly one event: ``evaluation.finished``,
``evaluation.skipped`` (another was running), ``evaluation.failed`` (infrastructure) or ``evaluation.aborted`` (its
weights were rolled back).  If the driver ends during an evaluation, the resumed run continues it after the finished
attempts; on a shared device, where the same weights return under another version, it starts over.  Only the end of
training and a shared device wait for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from actors.runtime.remote import Remote
from actors.scheduler.evaluation.plan import EvaluationPlan, OnlineEvaluationPlan
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.held_out.evaluation_store import (
    attempts_file,
    discard_pending_evaluation,
    finish_evaluation,
    load_pending_evaluations,
    online_evaluation_name,
    results_on_lineage,
    store_pending_evaluation,
)
from launch.evaluation.held_out.schedule import EvaluationSchedule, ScheduleDecision
from launch.evaluation.results.evaluation_folder import EvaluationSpec
from launch.evaluation.scores import OnlineEvaluationScore, evaluation_headline, score_attempts
from protocol.errors import InfraError, UserError
from protocol.evaluation import AttemptRecord
from protocol.events import EventLog, JsonValue
from protocol.weights import Lineage, WeightManifest, WeightVersion

_ROLLED_BACK = "its weights were rolled back"
_RESTARTED = "the same weights return under another version and are evaluated again if due"


class EvaluationHooks(Protocol):
    """Calls of the training loop."""

    async def on_published(self, manifest: WeightManifest) -> None:
        """These weights were published and are on their way to the engines."""
        ...

    async def on_rollback(self, step: int) -> None:
        """The run continues from ``step``; later weights are discarded."""
        ...

    async def wait_idle(self) -> None:
        """Return when no evaluation is running."""
        ...

    def take_score(self) -> OnlineEvaluationScore | None:
        """Return the score of the last evaluation, once."""
        ...

    async def request_evaluation(self, reason: str) -> str:
        """Evaluate the newest weights for a person; return a sentence.  Raises UserError if that is not possible."""
        ...


class NoOnlineEvaluation:
    """The hooks of a run without held-out tasks."""

    async def on_published(self, manifest: WeightManifest) -> None: ...
    async def on_rollback(self, step: int) -> None: ...
    async def wait_idle(self) -> None: ...
    def take_score(self) -> OnlineEvaluationScore | None: ...

    async def request_evaluation(self, reason: str) -> str:
        del reason
        raise UserError("there are no tasks to evaluate on: evaluation.tasks_per_family = 0 holds none out")


@dataclass(slots=True, kw_only=True)
class OnlineEvaluator:
    """Keeps published weights that are due for an evaluation, and evaluates them one after the other."""

    run_dir: Path
    schedule: EvaluationSchedule
    plan: EvaluationPlan
    """The plan of every evaluation; each gets a name."""
    spec: EvaluationSpec
    """The specification of every evaluation; each gets a name, step and version."""
    held_out_families: Sequence[str]
    scheduler: Remote[RolloutScheduler]
    evaluation_actors: Callable[[WeightManifest], AbstractAsyncContextManager[None]]
    wait_servable: Callable[[WeightManifest], Awaitable[None]]
    """Waits until the evaluation of these weights can start."""
    newest_weights: Callable[[], WeightManifest | None]
    """Returns the weights published last; None while no engine could serve them."""
    require_capacity: Callable[[], None]
    """Raises UserError if there is no sandbox or device for an evaluation."""
    checkpoints: CheckpointStore
    events: EventLog
    own_engine: bool = True
    """Whether each evaluation has an engine of its own; otherwise training's engines serve it."""
    _queued: WeightManifest | None = None
    """Stored weights to be evaluated next."""
    _running_timeout: asyncio.Timeout | None = None
    """Cancels the running evaluation on a roll-back."""
    _score: OnlineEvaluationScore | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    # -- training's side -----------------------------------------------------------------------------------------

    async def resume(self, lineage: Lineage, version: WeightVersion) -> None:
        """Continue a pending evaluation after a resume from ``version``.

        Its weights must not be rolled back, and an engine must be able to serve them under their old version."""
        results = await asyncio.to_thread(results_on_lineage, self.run_dir, lineage, version)
        self.schedule.evaluated_steps |= {result.step for result in results}
        known, line = self.checkpoints.scores(), set(lineage.walk_ancestors(version))
        for result in results:
            if result.step not in known:  # the driver died in between
                await asyncio.to_thread(
                    self.checkpoints.record_score, result.step, score_attempts(result.attempts).pass_at_1
                )
        for kept in reversed(await asyncio.to_thread(load_pending_evaluations, self.run_dir)):
            if kept.version not in line:
                await self._abort(kept, _ROLLED_BACK)
            elif self._queued is not None or kept.step in self.schedule.evaluated_steps or not self.own_engine:
                await self._abort(kept, _RESTARTED)
            else:
                self.schedule.begin(kept.step)
                self._queue(kept)

    async def on_published(self, manifest: WeightManifest) -> None:
        running = self.schedule.running_step
        match self.schedule.on_published(manifest.step):
            case ScheduleDecision.BEGIN:
                await self._store_and_queue(manifest)
            case ScheduleDecision.OVERLAPS if running is not None:
                self._emit("evaluation.skipped", manifest, why=f"{online_evaluation_name(running)} is still running")
            case _:
                pass

    async def on_rollback(self, step: int) -> None:
        if not self.own_engine and self.schedule.running_step == step:
            step -= 1  # these weights come back under another version
        if not self.schedule.roll_back(step):
            return
        if (kept := self._queued) is not None:
            self._queued = None
            await self._abort(kept, _ROLLED_BACK)
            self._update_idle()
        elif self._running_timeout is not None and not self._running_timeout.expired():
            self._running_timeout.reschedule(0.0)

    async def wait_idle(self) -> None:
        while not self._idle.is_set():
            await self._idle.wait()

    def take_score(self) -> OnlineEvaluationScore | None:
        found, self._score = self._score, None
        return found

    async def request_evaluation(self, reason: str) -> str:
        self.require_capacity()
        if (manifest := self.newest_weights()) is None:
            raise UserError("the learner has the device, and no engine serves the newest weights: try again")
        step, running = manifest.step, self.schedule.running_step
        match self.schedule.request(step):
            case ScheduleDecision.NOT_DUE:
                raise UserError(f"the newest weights, of step {step}, were evaluated already or are being evaluated")
            case ScheduleDecision.OVERLAPS:
                raise UserError(f"the evaluation of step {running} is still running: try again when it has finished")
            case ScheduleDecision.BEGIN:
                pass
        self._emit("evaluation.requested", manifest, reason=reason)
        await self._store_and_queue(manifest)
        if self.schedule.running_step != step:
            raise UserError(f"the weights of step {step} could not be stored: `longshore monitor RUN` shows why")
        return f"the weights of step {step} are evaluated during training; `longshore monitor RUN` will show the score"

    # -- online evaluations --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Evaluate what is due or requested until cancelled; a running evaluation then stays pending."""
        while True:
            if (kept := self._queued) is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._queued = None
            await self._run_evaluation(kept)
            self._update_idle()

    async def _store_and_queue(self, manifest: WeightManifest) -> None:
        """Store the weights and evaluate them next, as the schedule has decided."""
        self._idle.clear()
        self.checkpoints.expect_score(manifest.step)
        try:
            kept = await asyncio.to_thread(store_pending_evaluation, self.run_dir, self.spec, manifest)
        except OSError as error:
            await self._fail(manifest, error)
            self._update_idle()
            return
        if self.schedule.running_step == manifest.step:
            self._queue(kept)
        else:  # rolled back in the meantime
            await self._abort(kept, _ROLLED_BACK)
            self._update_idle()

    def _queue(self, kept: WeightManifest) -> None:
        self._queued = kept
        self._idle.clear()
        self._changed.set()
        self.checkpoints.expect_score(kept.step)

    def _update_idle(self) -> None:
        """Become idle unless an evaluation is queued or running."""
        if self._queued is None and self._running_timeout is None and self.schedule.running_step is None:
            self.checkpoints.expect_score(None)
            self._idle.set()

    async def _run_evaluation(self, kept: WeightManifest) -> None:
        """Evaluate stored weights and record how it ended."""
        self._emit("evaluation.started", kept)
        try:
            attempts = await self._evaluate_unless_rolled_back(kept)
            if attempts is None:
                await self._abort(kept, _ROLLED_BACK)
            elif not attempts:
                await self._fail(kept, InfraError("none of its tasks can run"))
            else:
                await self._finish(kept, attempts)
        except (InfraError, UserError, OSError) as error:
            await self._fail(kept, error)

    async def _evaluate_unless_rolled_back(self, kept: WeightManifest) -> Sequence[AttemptRecord] | None:
        """Return the attempts, or None if the weights were rolled back in the meantime."""
        timeout = self._running_timeout = asyncio.timeout(None)
        try:
            async with timeout:
                return await self._evaluate(kept)
        except TimeoutError:
            if not timeout.expired():
                raise
            return None
        finally:
            self._running_timeout = None

    async def _evaluate(self, kept: WeightManifest) -> Sequence[AttemptRecord]:
        await self.wait_servable(kept)
        plan = OnlineEvaluationPlan(
            replace(self.plan, name=online_evaluation_name(kept.step)),
            kept.version,
            attempts_file(self.run_dir, kept.version),
        )
        async with self.evaluation_actors(kept):
            return await self.scheduler.call(RolloutScheduler.run_online_evaluation, plan)

    async def _finish(self, kept: WeightManifest, attempts: Sequence[AttemptRecord]) -> None:
        """Record a result.  Raises OSError."""
        await asyncio.to_thread(finish_evaluation, self.run_dir, kept.version, attempts)
        if self.schedule.running_step != kept.step:  # rolled back
            self._emit("evaluation.aborted", kept, why=_ROLLED_BACK)
            return
        found = score_attempts(attempts)
        await asyncio.to_thread(self.checkpoints.record_score, kept.step, found.pass_at_1)
        self._score = OnlineEvaluationScore(kept.step, found)
        self.schedule.finish(complete=True)
        self._emit("evaluation.finished", kept, **evaluation_headline(attempts, self.held_out_families))

    async def _fail(self, manifest: WeightManifest, error: Exception) -> None:
        """Drop a failed evaluation; its step may be evaluated again."""
        await asyncio.to_thread(discard_pending_evaluation, self.run_dir, manifest.version)
        if self.schedule.running_step == manifest.step:
            self.schedule.finish(complete=False)
        self._emit("evaluation.failed", manifest, why=" ".join(str(error).split()))

    async def _abort(self, kept: WeightManifest, why: str) -> None:
        await asyncio.to_thread(discard_pending_evaluation, self.run_dir, kept.version)
        self._emit("evaluation.aborted", kept, why=why)

    def _emit(self, kind: str, manifest: WeightManifest, **fields: JsonValue) -> None:
        name = online_evaluation_name(manifest.step)
        self.events.emit(kind, name=name, step=manifest.step, version=manifest.version, **fields)
