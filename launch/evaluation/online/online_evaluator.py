"""Evaluations beside training: which there are, what they come to, and that they stand in nobody's way.

Training says which weights it has published (:meth:`OnlineEvaluator.on_published`) and goes on.  Those that are due
(:mod:`launch.evaluation.online.schedule`) are kept as they are (:mod:`launch.evaluation.online.result_store`) and
evaluated, one after the other, by an engine and a worker that come and go with each
(:meth:`launch.actor_group.group.ActorGroup.evaluation_actors`): no engine of training's keeps old weights for it, and
none of training's episodes waits for a place.  Where learner and engine share a device there is no memory for a second
server: the engine that there is serves the very weights until the learner's next turn, which waits for the end
(:meth:`OnlineEvaluator.wait_idle`).

A person may ask for one of the newest weights (:meth:`OnlineEvaluator.request_evaluation`), and learns at once whether
it is under way.  Each that is due ends in exactly one of these, as an event: ``eval.finished``, ``eval.skipped``
(another was under way), ``eval.failed`` (infrastructure), ``eval.aborted`` (its weights were rolled back).  One that is
cut off by the end of the driver goes on with the run, behind the attempts that there are; on a shared device, where the
same weights come back under another version, it begins anew.  Nobody waits for one but the end of training and a shared
device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from actors.runtime.remote import Remote
from actors.scheduler.evaluation import EvaluationAttempt, EvaluationPlan
from actors.scheduler.online_evaluation import OnlineEvaluationPlan
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.checkpoints.store import CheckpointStore
from launch.evaluation.online.result_store import (
    attempts_file,
    discard_pending_evaluation,
    load_pending_evaluations,
    online_evaluation_name,
    results_on_lineage,
    store_pending_evaluation,
    write_evaluation_result,
)
from launch.evaluation.online.schedule import EvaluationSchedule, ScheduleDecision
from launch.evaluation.scores import OnlineEvaluationScore, evaluation_headline, score_attempts
from protocol.errors import InfraError, UserError
from protocol.events import EventLog, JsonValue
from protocol.weights import Lineage, WeightManifest, WeightVersion

_ROLLED_BACK = "its weights were rolled back"
_ANEW = "the same weights come back under another version: where they are due it begins anew"


class EvaluationHooks(Protocol):
    """What training says and asks."""

    async def on_published(self, manifest: WeightManifest) -> None:
        """These weights are there, on their way to the engines."""
        ...

    async def on_rollback(self, step: int) -> None:
        """The run goes on from ``step``: later weights are gone."""
        ...

    async def wait_idle(self) -> None:
        """Return when none is under way."""
        ...

    def take_score(self) -> OnlineEvaluationScore | None:
        """What the last one came to, once."""
        ...

    async def request_evaluation(self, reason: str) -> str:
        """A person wants the newest weights evaluated: what is under way now.  Raises UserError where it cannot be."""
        ...


class NoOnlineEvaluation:
    """For a run that holds out no task."""

    async def on_published(self, manifest: WeightManifest) -> None: ...
    async def on_rollback(self, step: int) -> None: ...
    async def wait_idle(self) -> None: ...
    def take_score(self) -> OnlineEvaluationScore | None: ...

    async def request_evaluation(self, reason: str) -> str:
        del reason
        raise UserError("there is nothing to evaluate on: evaluation.tasks_per_family = 0 holds no task out")


@dataclass(slots=True, kw_only=True)
class OnlineEvaluator:
    run_dir: Path
    schedule: EvaluationSchedule
    plan: EvaluationPlan
    """What each of them is, but for the name."""
    held_out_families: Sequence[str]
    conductor: Remote[RolloutScheduler]
    evaluation_actors: Callable[[WeightManifest], AbstractAsyncContextManager[None]]
    wait_servable: Callable[[WeightManifest], Awaitable[None]]
    """Returns when those who are to evaluate these weights can be started."""
    newest_weights: Callable[[], WeightManifest | None]
    """What was published last; None while no engine could serve it."""
    require_capacity: Callable[[], None]
    """Raises UserError where there is neither sandbox nor device for one."""
    checkpoints: CheckpointStore
    events: EventLog
    own_engine: bool = True
    """Each is by an engine of its own; else by those that serve training."""
    _queued: WeightManifest | None = None
    """Kept, and to be evaluated."""
    _running_timeout: asyncio.Timeout | None = None
    """Around the one that is under way."""
    _score: OnlineEvaluationScore | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    # -- training's side -----------------------------------------------------------------------------------------

    async def resume(self, lineage: Lineage, version: WeightVersion) -> None:
        """The run goes on with ``version``: what was under way does too, if its weights stand and an engine can serve
        them under the version that they had."""
        standing = await asyncio.to_thread(results_on_lineage, self.run_dir, lineage, version)
        self.schedule.evaluated_steps |= {exam.step for exam in standing}
        known, line = self.checkpoints.scores(), set(lineage.walk_ancestors(version))
        for exam in standing:
            if exam.step not in known:  # the driver died in between
                await asyncio.to_thread(
                    self.checkpoints.record_score, exam.step, score_attempts(exam.attempts).pass_at_1
                )
        for kept in reversed(await asyncio.to_thread(load_pending_evaluations, self.run_dir)):
            if kept.version not in line:
                await self._abort(kept, _ROLLED_BACK)
            elif self._queued is not None or kept.step in self.schedule.evaluated_steps or not self.own_engine:
                await self._abort(kept, _ANEW)
            else:
                self.schedule.begin(kept.step)
                self._queue(kept)

    async def on_published(self, manifest: WeightManifest) -> None:
        under_way = self.schedule.running_step
        match self.schedule.on_published(manifest.step):
            case ScheduleDecision.BEGIN:
                await self._store_and_queue(manifest)
            case ScheduleDecision.OVERLAPS if under_way is not None:
                self._emit(
                    "eval.skipped", manifest, why=f"that of {online_evaluation_name(under_way)} is still under way"
                )
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
            raise UserError("the learner has the device, and no engine serves the newest weights: ask again")
        step, under_way = manifest.step, self.schedule.running_step
        match self.schedule.request(step):
            case ScheduleDecision.NOT_DUE:
                raise UserError(
                    f"step {step}'s weights are the newest, and were evaluated already, or are being evaluated"
                )
            case ScheduleDecision.OVERLAPS:
                raise UserError(f"the evaluation of step {under_way} is still under way: ask again when it is over")
            case ScheduleDecision.BEGIN:
                pass
        self._emit("eval.requested", manifest, reason=reason)
        await self._store_and_queue(manifest)
        if self.schedule.running_step != step:
            raise UserError(f"the weights of step {step} could not be kept: the run's last eval events say why")
        return f"the weights of step {step} are evaluated beside training; the event eval.finished says what it came to"

    # -- beside training -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Evaluate what is due and what was asked for, until cancelled: what is under way then is kept for later."""
        while True:
            if (kept := self._queued) is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._queued = None
            await self._run_evaluation(kept)
            self._update_idle()

    async def _store_and_queue(self, manifest: WeightManifest) -> None:
        """Keep the weights, and have them evaluated next: the agenda says so."""
        self._idle.clear()
        self.checkpoints.expect_score(manifest.step)
        try:
            kept = await asyncio.to_thread(store_pending_evaluation, self.run_dir, manifest)
        except OSError as error:
            await self._fail(manifest, error)
            self._update_idle()
            return
        if self.schedule.running_step == manifest.step:
            self._queue(kept)
        else:  # rolled back meanwhile
            await self._abort(kept, _ROLLED_BACK)
            self._update_idle()

    def _queue(self, kept: WeightManifest) -> None:
        self._queued = kept
        self._idle.clear()
        self._changed.set()
        self.checkpoints.expect_score(kept.step)

    def _update_idle(self) -> None:
        """Nothing is under way, unless the next is there already."""
        if self._queued is None and self._running_timeout is None and self.schedule.running_step is None:
            self.checkpoints.expect_score(None)
            self._idle.set()

    async def _run_evaluation(self, kept: WeightManifest) -> None:
        """Evaluate these weights, which are the agenda's until they were rolled back."""
        self._emit("eval.started", kept)
        try:
            attempts = await self._evaluate_unless_rolled_back(kept)
            if attempts is None:
                await self._abort(kept, _ROLLED_BACK)
            else:
                await self._finish(kept, attempts)
        except (InfraError, UserError, OSError) as error:
            await self._fail(kept, error)

    async def _evaluate_unless_rolled_back(self, kept: WeightManifest) -> Sequence[EvaluationAttempt] | None:
        """What these weights did; None where they were rolled back meanwhile."""
        holding = self._running_timeout = asyncio.timeout(None)
        try:
            async with holding:
                return await self._evaluate(kept)
        except TimeoutError:
            if not holding.expired():
                raise
            return None
        finally:
            self._running_timeout = None

    async def _evaluate(self, kept: WeightManifest) -> Sequence[EvaluationAttempt]:
        await self.wait_servable(kept)
        plan = OnlineEvaluationPlan(
            replace(self.plan, name=online_evaluation_name(kept.step)),
            kept.version,
            attempts_file(self.run_dir, kept.version),
        )
        async with self.evaluation_actors(kept):
            return await self.conductor.call(RolloutScheduler.run_online_evaluation, plan)

    async def _finish(self, kept: WeightManifest, attempts: Sequence[EvaluationAttempt]) -> None:
        """Raises OSError where it cannot be kept what it came to."""
        await asyncio.to_thread(write_evaluation_result, self.run_dir, kept, attempts)
        if self.schedule.running_step != kept.step:  # no score of what stands
            self._emit("eval.aborted", kept, why=_ROLLED_BACK)
            return
        found = score_attempts(attempts)
        await asyncio.to_thread(self.checkpoints.record_score, kept.step, found.pass_at_1)
        self._score = OnlineEvaluationScore(kept.step, found)
        self.schedule.finish(complete=True)
        self._emit("eval.finished", kept, **evaluation_headline(attempts, self.held_out_families))

    async def _fail(self, manifest: WeightManifest, error: Exception) -> None:
        """It costs itself alone, and its step may be evaluated another time."""
        await asyncio.to_thread(discard_pending_evaluation, self.run_dir, manifest.version)
        if self.schedule.running_step == manifest.step:
            self.schedule.finish(complete=False)
        self._emit("eval.failed", manifest, why=" ".join(str(error).split()))

    async def _abort(self, kept: WeightManifest, why: str) -> None:
        await asyncio.to_thread(discard_pending_evaluation, self.run_dir, kept.version)
        self._emit("eval.aborted", kept, why=why)

    def _emit(self, kind: str, manifest: WeightManifest, **fields: JsonValue) -> None:
        name = online_evaluation_name(manifest.step)
        self.events.emit(kind, name=name, step=manifest.step, version=manifest.version, **fields)
