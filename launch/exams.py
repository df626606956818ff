"""Evaluations beside training: which there are, what they come to, and that they stand in nobody's way.

Training says which weights it has published (:meth:`Exams.published`) and goes on.  Those that are due
(:mod:`launch.agenda`) are kept as they are (:mod:`launch.exam_files`) and evaluated, one after the other, by an engine
and a worker that come and go with each (:meth:`launch.fleet.Fleet.examining`): no engine of training's keeps old
weights for it, and none of training's episodes waits for a place.  Where learner and engine share a device there is no
memory for a second server: the engine that there is serves the very weights until the learner's next turn, which waits
for the end (:meth:`Exams.idle`).

A person may ask for one of the newest weights (:meth:`Exams.ask`), and learns at once whether it is under way.  Each
that is due ends in exactly one of these, as an event: ``eval.finished``, ``eval.skipped`` (another was under way),
``eval.failed`` (infrastructure), ``eval.broken_off`` (its weights were rolled back).  One that is cut off by the end of
the driver goes on with the run, behind the attempts that there are; on a shared device, where the same weights come
back under another version, it begins anew.  Nobody waits for one but the end of training and a shared device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from actors.conductor import Conductor
from actors.evaluation import Attempt, EvaluationPlan
from actors.exam import ExamPlan
from actors.remote import Remote
from launch.agenda import Agenda, Verdict
from launch.checkpoints import CheckpointStore
from launch.evaluations import ExamScore, headline, score
from launch.exam_files import (
    attempts_file,
    end_exam,
    exam_name,
    forget_exam,
    keep_exam,
    kept_exams,
    standing_exams,
)
from protocol.errors import InfraError, UserError
from protocol.events import EventLog, Json
from protocol.weights import Lineage, Version, WeightManifest

_ROLLED_BACK = "its weights were rolled back"
_ANEW = "the same weights come back under another version: where they are due it begins anew"


class Examining(Protocol):
    """What training says and asks."""

    async def published(self, manifest: WeightManifest) -> None:
        """These weights are there, on their way to the engines."""
        ...

    async def rolled_back(self, step: int) -> None:
        """The run goes on from ``step``: later weights are gone."""
        ...

    async def idle(self) -> None:
        """Return when none is under way."""
        ...

    def found(self) -> ExamScore | None:
        """What the last one came to, once."""
        ...

    async def ask(self, reason: str) -> str:
        """A person wants the newest weights evaluated: what is under way now.  Raises UserError where it cannot be."""
        ...


class NoExams:
    """For a run that holds out no task."""

    async def published(self, manifest: WeightManifest) -> None: ...
    async def rolled_back(self, step: int) -> None: ...
    async def idle(self) -> None: ...
    def found(self) -> ExamScore | None: ...

    async def ask(self, reason: str) -> str:
        del reason
        raise UserError("there is nothing to evaluate on: evaluation.tasks_per_family = 0 holds no task out")


@dataclass(slots=True, kw_only=True)
class Exams:
    run_dir: Path
    agenda: Agenda
    plan: EvaluationPlan
    """What each of them is, but for the name."""
    held_out_families: Sequence[str]
    conductor: Remote[Conductor]
    examining: Callable[[WeightManifest], AbstractAsyncContextManager[None]]
    served: Callable[[WeightManifest], Awaitable[None]]
    """Returns when those who are to evaluate these weights can be started."""
    newest: Callable[[], WeightManifest | None]
    """What was published last; None while no engine could serve it."""
    require_place: Callable[[], None]
    """Raises UserError where there is neither sandbox nor device for one."""
    checkpoints: CheckpointStore
    events: EventLog
    own_engine: bool = True
    """Each is by an engine of its own; else by those that serve training."""
    _next: WeightManifest | None = None
    """Kept, and to be evaluated."""
    _holding: asyncio.Timeout | None = None
    """Around the one that is under way."""
    _found: ExamScore | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    # -- training's side -----------------------------------------------------------------------------------------

    async def resume(self, lineage: Lineage, version: Version) -> None:
        """The run goes on with ``version``: what was under way does too, if its weights stand and an engine can serve
        them under the version that they had."""
        standing = await asyncio.to_thread(standing_exams, self.run_dir, lineage, version)
        self.agenda.held |= {exam.step for exam in standing}
        known, line = self.checkpoints.scores(), set(lineage.line(version))
        for exam in standing:
            if exam.step not in known:  # the driver died in between
                await asyncio.to_thread(self.checkpoints.scored, exam.step, score(exam.attempts).pass_at_1)
        for kept in reversed(await asyncio.to_thread(kept_exams, self.run_dir)):
            if kept.version not in line:
                await self._break_off(kept, _ROLLED_BACK)
            elif self._next is not None or kept.step in self.agenda.held or not self.own_engine:
                await self._break_off(kept, _ANEW)
            else:
                self.agenda.begin(kept.step)
                self._put(kept)

    async def published(self, manifest: WeightManifest) -> None:
        under_way = self.agenda.under_way
        match self.agenda.published(manifest.step):
            case Verdict.BEGIN:
                await self._begin(manifest)
            case Verdict.OVERLAPS if under_way is not None:
                self._tell("eval.skipped", manifest, why=f"that of {exam_name(under_way)} is still under way")
            case _:
                pass

    async def rolled_back(self, step: int) -> None:
        if not self.own_engine and self.agenda.under_way == step:
            step -= 1  # these weights come back under another version
        if not self.agenda.rolled_back(step):
            return
        if (kept := self._next) is not None:
            self._next = None
            await self._break_off(kept, _ROLLED_BACK)
            self._rest()
        elif self._holding is not None and not self._holding.expired():
            self._holding.reschedule(0.0)

    async def idle(self) -> None:
        while not self._idle.is_set():
            await self._idle.wait()

    def found(self) -> ExamScore | None:
        found, self._found = self._found, None
        return found

    async def ask(self, reason: str) -> str:
        self.require_place()
        if (manifest := self.newest()) is None:
            raise UserError("the learner has the device, and no engine serves the newest weights: ask again")
        step, under_way = manifest.step, self.agenda.under_way
        match self.agenda.asked(step):
            case Verdict.NOT_DUE:
                raise UserError(
                    f"step {step}'s weights are the newest, and were evaluated already, or are being evaluated"
                )
            case Verdict.OVERLAPS:
                raise UserError(f"the evaluation of step {under_way} is still under way: ask again when it is over")
            case Verdict.BEGIN:
                pass
        self._tell("eval.asked", manifest, reason=reason)
        await self._begin(manifest)
        if self.agenda.under_way != step:
            raise UserError(f"the weights of step {step} could not be kept: the run's last eval events say why")
        return f"the weights of step {step} are evaluated beside training; the event eval.finished says what it came to"

    # -- beside training -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Evaluate what is due and what was asked for, until cancelled: what is under way then is kept for later."""
        while True:
            if (kept := self._next) is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._next = None
            await self._hold(kept)
            self._rest()

    async def _begin(self, manifest: WeightManifest) -> None:
        """Keep the weights, and have them evaluated next: the agenda says so."""
        self._idle.clear()
        self.checkpoints.await_score(manifest.step)
        try:
            kept = await asyncio.to_thread(keep_exam, self.run_dir, manifest)
        except OSError as error:
            await self._fail(manifest, error)
            self._rest()
            return
        if self.agenda.under_way == manifest.step:
            self._put(kept)
        else:  # rolled back meanwhile
            await self._break_off(kept, _ROLLED_BACK)
            self._rest()

    def _put(self, kept: WeightManifest) -> None:
        self._next = kept
        self._idle.clear()
        self._changed.set()
        self.checkpoints.await_score(kept.step)

    def _rest(self) -> None:
        """Nothing is under way, unless the next is there already."""
        if self._next is None and self._holding is None and self.agenda.under_way is None:
            self.checkpoints.await_score(None)
            self._idle.set()

    async def _hold(self, kept: WeightManifest) -> None:
        """Evaluate these weights, which are the agenda's until they were rolled back."""
        self._tell("eval.begun", kept)
        try:
            attempts = await self._unless_rolled_back(kept)
            if attempts is None:
                await self._break_off(kept, _ROLLED_BACK)
            else:
                await self._finish(kept, attempts)
        except (InfraError, UserError, OSError) as error:
            await self._fail(kept, error)

    async def _unless_rolled_back(self, kept: WeightManifest) -> Sequence[Attempt] | None:
        """What these weights did; None where they were rolled back meanwhile."""
        holding = self._holding = asyncio.timeout(None)
        try:
            async with holding:
                return await self._evaluated(kept)
        except TimeoutError:
            if not holding.expired():
                raise
            return None
        finally:
            self._holding = None

    async def _evaluated(self, kept: WeightManifest) -> Sequence[Attempt]:
        await self.served(kept)
        plan = ExamPlan(
            replace(self.plan, name=exam_name(kept.step)), kept.version, attempts_file(self.run_dir, kept.version)
        )
        async with self.examining(kept):
            return await self.conductor.call(Conductor.examine, plan)

    async def _finish(self, kept: WeightManifest, attempts: Sequence[Attempt]) -> None:
        """Raises OSError where it cannot be kept what it came to."""
        await asyncio.to_thread(end_exam, self.run_dir, kept, attempts)
        if self.agenda.under_way != kept.step:  # no score of what stands
            self._tell("eval.broken_off", kept, why=_ROLLED_BACK)
            return
        found = score(attempts)
        await asyncio.to_thread(self.checkpoints.scored, kept.step, found.pass_at_1)
        self._found = ExamScore(kept.step, found)
        self.agenda.ended(complete=True)
        self._tell("eval.finished", kept, **headline(attempts, self.held_out_families))

    async def _fail(self, manifest: WeightManifest, error: Exception) -> None:
        """It costs itself alone, and its step may be evaluated another time."""
        await asyncio.to_thread(forget_exam, self.run_dir, manifest.version)
        if self.agenda.under_way == manifest.step:
            self.agenda.ended(complete=False)
        self._tell("eval.failed", manifest, why=" ".join(str(error).split()))

    async def _break_off(self, kept: WeightManifest, why: str) -> None:
        await asyncio.to_thread(forget_exam, self.run_dir, kept.version)
        self._tell("eval.broken_off", kept, why=why)

    def _tell(self, kind: str, manifest: WeightManifest, **fields: Json) -> None:
        name = exam_name(manifest.step)
        self.events.emit(kind, name=name, step=manifest.step, version=manifest.version, **fields)
