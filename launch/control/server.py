"""The driver's desk: takes requests from the run's directory, has each done where that is safe, and answers.

It waits for whoever has to do what is asked, each request for itself, so that a run which is paused can be told to go
on.  Every request ends in one answer, an event; where the run ends first, that is the answer.  It ends when it is
cancelled.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.admission import RolloutFlow
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.actor_settings import admission_tuning
from launch.config import RunConfig
from launch.control.pause_state import write_paused
from launch.control.requests import (
    REQUEST_ANSWERED_EVENT,
    REQUEST_TAKEN_EVENT,
    REQUESTS_FOLDER,
    ControlAction,
    ControlRequest,
    list_request_files,
    read_request,
)
from launch.control.run_state import RunStatePublisher
from launch.control.step_hooks import TrainingEnding
from launch.run_records.config_changes import record_changes
from launch.run_records.retunable_keys import RETUNABLE_KEYS, ChangePoint, KeyChange, apply_changes, diff_configs
from launch.training.loop import TrainingLoop
from protocol.errors import InfraError, LongshoreError, UserError
from protocol.events import EventLog
from protocol.trajectory import GroupId, make_trajectory_id

_LOOK_S = 0.5
_RETRY_S = 0.5
_ENDED = "the run ended before it could be done"


class CancelTarget(NamedTuple):
    """What is to be cancelled."""

    group: GroupId
    sample: int | None
    """None for all of the group."""


_TARGET = re.compile(r"(?:train-)?g?(?P<group>\d{1,15})(?:-s(?P<sample>\d{1,9}))?(?:-a\d+)?")


def parse_cancel_target(text: str) -> CancelTarget:
    """A group or a trajectory, as events and pages name them.  Raises UserError."""
    if (found := _TARGET.fullmatch(text)) is None:
        raise UserError(
            f"'{text}' is neither a group nor a trajectory of the training: write 12 or train-g000012-s03 "
            "(python -m launch.ctl RUN list shows what runs)"
        )
    sample = found["sample"]
    return CancelTarget(GroupId(int(found["group"])), None if sample is None else int(sample))


@dataclass(slots=True, kw_only=True)
class ControlServer:
    run_dir: Path
    events: EventLog
    run_state: RunStatePublisher
    scheduler: Remote[RolloutScheduler]
    training: TrainingLoop
    config: RunConfig
    apply_config: Callable[[RunConfig], None]
    """Let the run go by another configuration from now on."""
    set_learning_rate_from: Callable[[int, float], Awaitable[None]]
    """Let the learner have this rate from that step on."""
    cancel_episodes: Callable[[Sequence[str]], Awaitable[None]]
    drain_engine: Callable[[str], Awaitable[bool]]
    """Let it end what it samples, and start another server; whether all ended in time."""
    evaluate: Callable[[str], Awaitable[str]]
    """Between two steps: have the newest weights evaluated, for that reason; what is under way then."""
    attempt_started_at: float = 0.0
    """Unix time; what was asked before was asked of an attempt that has ended."""
    _taken: set[str] = field(default_factory=set[str])

    async def serve(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as answers:
            while True:
                for path in list_request_files(self.run_dir):
                    if path.name not in self._taken:
                        self._taken.add(path.name)
                        answers.create_task(self._handle_file(path), name=f"request {path.stem}")
                await asyncio.sleep(_LOOK_S)

    async def _handle_file(self, path: Path) -> None:
        try:
            request = read_request(path)
        except UserError as error:
            self.events.emit(REQUEST_ANSWERED_EVENT, request=path.stem, action="", ok=False, text=str(error), reason="")
            self._delete_file(path)
            return
        self.events.emit(
            REQUEST_TAKEN_EVENT,
            request=request.id,
            action=request.action.value,
            reason=request.reason,
            by=request.by,
            changes=dict(request.changes),
            target=request.target,
        )
        ok, text = False, _ENDED
        try:
            text = await self._handle(request)
            ok = True
        except LongshoreError as error:
            text = str(error)
        except Exception as error:  # noqa: BLE001  # the boundary: what goes wrong with a request does not end a run
            text = f"{type(error).__name__}: {error}"
        finally:
            self._emit_answer(request, text, ok=ok)

    def _emit_answer(self, request: ControlRequest, text: str, *, ok: bool) -> None:
        self.events.emit(
            REQUEST_ANSWERED_EVENT,
            request=request.id,
            action=request.action.value,
            ok=ok,
            text=text,
            reason=request.reason,
        )
        self._delete_file(self.run_dir / REQUESTS_FOLDER / request.file)

    def _delete_file(self, path: Path) -> None:
        with suppress(OSError):  # then it is there still, and not taken again
            path.unlink()
            self._taken.discard(path.name)

    async def _handle(self, request: ControlRequest) -> str:
        """What was done.  Raises UserError for what cannot be, InfraError for what failed."""
        if request.t < self.attempt_started_at:
            raise UserError("it was asked of an attempt that has ended: ask again")
        match request.action:
            case ControlAction.PAUSE:
                return await self._pause()
            case ControlAction.RESUME:
                return await self._resume()
            case ControlAction.DRAIN:
                return await self._drain(request.target)
            case ControlAction.STOP:
                return await self._end_training(
                    TrainingEnding.STOPPED_BY_REQUEST, "training ends behind the step that is being taken"
                )
            case ControlAction.RETUNE:
                return await self._retune(request)
            case ControlAction.CANCEL:
                return await self._cancel(parse_cancel_target(request.target))
            case ControlAction.CHECKPOINT:
                step = await self.training.step_hooks.run_between_steps(self.training.checkpoint_now)
                await self.training.wait_checkpoint(step)
                return f"the checkpoint of step {step} is kept"
            case ControlAction.EVALUATE:
                return await self.training.step_hooks.run_between_steps(lambda: self.evaluate(request.reason))

    # -- going on and not ----------------------------------------------------------------------------------------

    async def _pause(self) -> str:
        boundary = self.training.step_hooks
        boundary.require_open()
        if boundary.ending is not None:
            raise UserError("the run is coming to its end already, as it was asked to")
        boundary.pause()
        write_paused(self.run_dir, True)
        await self._set_flow(RolloutFlow.PAUSE)

        async def stands() -> bool:
            return boundary.paused

        if not await boundary.run_between_steps(stands):
            raise UserError("the run was told to go on before the learner had come to its next step")
        return f"no rollout begins, and the learner stands behind step {self.training.step}"

    async def _resume(self) -> str:
        boundary = self.training.step_hooks
        boundary.require_open()
        write_paused(self.run_dir, False)
        boundary.resume()
        if boundary.ending is None:
            await self._set_flow(RolloutFlow.RUN)
        return f"the run goes on behind step {self.training.step}"

    async def _end_training(self, how: TrainingEnding, text: str) -> str:
        boundary = self.training.step_hooks
        boundary.require_open()
        write_paused(self.run_dir, False)
        await self._set_flow(RolloutFlow.DRAIN)
        boundary.request_end(how)
        return text

    async def _set_flow(self, flow: RolloutFlow) -> None:
        while True:
            try:
                await self.run_state.set_flow(flow)
            except RemoteError:
                await asyncio.sleep(_RETRY_S)  # the conductor is being restarted
            else:
                return

    # -- other values --------------------------------------------------------------------------------------------

    async def _retune(self, request: ControlRequest) -> str:
        changed = diff_configs(self.config, apply_changes(self.config, request.changes))
        if not changed:
            raise UserError("that is what the run goes by already")
        if any(RETUNABLE_KEYS[change.key] is ChangePoint.STEP for change in changed):
            return await self.training.step_hooks.run_between_steps(lambda: self._apply_change(request))
        return await self._apply_change(request)

    async def _apply_change(self, request: ControlRequest) -> str:
        """The configuration first, so that whatever dies meanwhile comes back with it."""
        after, step = apply_changes(self.config, request.changes), self.training.step
        changed = diff_configs(self.config, after)
        record_changes(self.run_dir, after, changed, request, first_step=step + 1)
        before, self.config = self.config, after
        self.apply_config(after)
        if after.learning_rate != before.learning_rate:
            await self.set_learning_rate_from(step + 1, after.learning_rate)
        if admission_tuning(after) != admission_tuning(before):
            await self._set_tuning(after)
        self._emit_changes(changed, request)
        return "; ".join(map(str, changed)) or "another request has changed that already"

    async def _set_tuning(self, config: RunConfig) -> None:
        with suppress(RemoteError):  # the conductor is being restarted: it is told again within seconds
            await self.run_state.set_tuning(admission_tuning(config))

    def _emit_changes(self, changed: Sequence[KeyChange], request: ControlRequest) -> None:
        for change in changed:
            self.events.emit(
                "run.config_changed",
                key=change.key,
                before=change.before,
                after=change.after,
                reason=request.reason,
            )

    # -- one engine, one rollout ---------------------------------------------------------------------------------

    async def _drain(self, engine: str) -> str:
        """That engine, or the run."""
        if not engine:
            return await self._end_training(
                TrainingEnding.DRAINED, "no group opens any more; what is under way ends and is trained"
            )
        ended = await self.drain_engine(engine)
        what = "what it sampled has ended" if ended else "what did not end in time goes on behind its tokens"
        return f"{engine} is drained: {what}, and another server is in its place"

    async def _cancel(self, target: CancelTarget) -> str:
        try:
            samples = await self.scheduler.call(RolloutScheduler.cancel_samples, *target)
        except RemoteError as error:
            raise InfraError(f"the conductor did not answer, ask again: {error}") from error
        await self.cancel_episodes([make_trajectory_id(target.group, sample) for sample in samples])
        what = f"group {target.group}" if target.sample is None else f"sample {target.sample} of group {target.group}"
        return f"{what} is given up: {len(samples)} rollouts end, and are counted as cancelled"
