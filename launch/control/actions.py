"""Executes control requests on a run.

A change of state that must not happen during a step is made between two steps
(:class:`~launch.control.step_hooks.StepHooks`); everything else is done at once.  Calls to the scheduler are retried,
so an action also succeeds while that actor restarts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.admission import RolloutFlow
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.config import RunConfig
from launch.control.pause_state import PAUSE_ALERT, describe_pause, is_paused, write_paused
from launch.control.requests import ControlAction, ControlRequest
from launch.control.scheduler_state import SchedulerStateSender
from launch.control.step_hooks import StepHooks, StopReason
from launch.run_records.config_changes import record_changes
from launch.run_records.retunable_keys import RETUNABLE_KEYS, ChangePoint, KeyChange, apply_changes, diff_configs
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.trajectory import GroupId, make_trajectory_id

RETRY_S = 0.5


class CancelTarget(NamedTuple):
    """The rollouts that a request cancels."""

    group: GroupId
    sample: int | None
    """Sample of the group; None for all of them."""


_TARGET = re.compile(r"(?:train-)?g?(?P<group>\d{1,15})(?:-s(?P<sample>\d{1,9}))?(?:-a\d+)?")


def parse_cancel_target(text: str) -> CancelTarget:
    """Parse the name of a group or a trajectory as events and pages show it.  Raises UserError."""
    if (found := _TARGET.fullmatch(text)) is None:
        raise UserError(
            f"'{text}' is neither a training group nor a training trajectory: write 12 or train-g000012-s03 "
            "(longshore ctl RUN list shows the running ones)"
        )
    sample = found["sample"]
    return CancelTarget(GroupId(int(found["group"])), None if sample is None else int(sample))


class ControlledTraining(Protocol):
    """The part of the training loop that requests act on."""

    @property
    def step(self) -> int:
        """Number of optimizer steps taken so far."""
        ...

    async def checkpoint_now(self) -> int:
        """Begin a checkpoint between two steps and return its step."""
        ...

    async def wait_checkpoint(self, step: int) -> None:
        """Wait until the checkpoint of ``step`` is complete.  Raises UserError if it could not be written."""
        ...


@dataclass(slots=True, kw_only=True)
class ControlActions:
    """Executes control requests; those of different callers may overlap."""

    run_dir: Path
    events: EventLog
    scheduler_state: SchedulerStateSender
    scheduler: Remote[RolloutScheduler]
    training: ControlledTraining
    step_hooks: StepHooks
    config: RunConfig
    apply_config: Callable[[RunConfig], None]
    """Switches the run to another configuration."""
    set_learning_rate_from: Callable[[int, float], Awaitable[None]]
    """Sets the learning rate from the given optimizer step on."""
    cancel_episodes: Callable[[Sequence[str]], Awaitable[None]]
    """Ends the running episodes of the trajectories with these names."""
    drain_engine: Callable[[str], Awaitable[bool]]
    """Lets an engine finish its requests and replaces its server; returns whether all finished in time."""
    evaluate: Callable[[str], Awaitable[str]]
    """Starts an evaluation of the newest weights for the given reason and describes it; called between two steps."""

    async def execute(self, request: ControlRequest) -> str:  # noqa: PLR0911  one return for each action
        """Execute ``request`` and describe the result.  Raises UserError for an impossible request and InfraError for
        one that failed."""
        training = self.training
        match request.action:
            case ControlAction.PAUSE:
                return await self._pause()
            case ControlAction.RESUME:
                return await self._resume()
            case ControlAction.DRAIN if request.target:
                return await self._drain_engine(request.target)
            case ControlAction.DRAIN:
                text = "no group opens any more; running episodes finish and are trained"
                return await self._end_training(StopReason.DRAINED, text)
            case ControlAction.STOP:
                return await self._end_training(StopReason.STOPPED_BY_REQUEST, "training ends after the current step")
            case ControlAction.RETUNE:
                return await self._retune(request)
            case ControlAction.CANCEL:
                return await self._cancel(parse_cancel_target(request.target))
            case ControlAction.CHECKPOINT:
                step = await self.step_hooks.run_between_steps(training.checkpoint_now)
                await training.wait_checkpoint(step)
                return f"the checkpoint of step {step} is kept"
            case ControlAction.EVALUATE:
                return await self.step_hooks.run_between_steps(lambda: self.evaluate(request.reason))

    # -- pause, resume, end --------------------------------------------------------------------------------------

    async def _pause(self) -> str:
        hooks = self.step_hooks
        hooks.require_open()
        if hooks.requested_stop is not None:
            raise UserError("the run is already ending on request")
        hooks.pause()
        self._record_pause(True)
        await self._set_flow(RolloutFlow.PAUSE)

        async def is_still_paused() -> bool:
            return hooks.paused

        if not await hooks.run_between_steps(is_still_paused):
            raise UserError("the run was resumed before the learner had reached its next step")
        return f"no rollout begins, and the learner waits after step {self.training.step}"

    async def _resume(self) -> str:
        hooks = self.step_hooks
        hooks.require_open()
        self._record_pause(False)
        hooks.resume()
        if hooks.requested_stop is None:
            await self._set_flow(RolloutFlow.RUN)
        return f"the run continues after step {self.training.step}"

    def _record_pause(self, paused: bool) -> None:
        """Record whether the run is paused, and raise or resolve the alert that says so."""
        if paused == is_paused(self.run_dir):
            return
        write_paused(self.run_dir, paused)
        if paused:
            self.events.emit("alert.raised", name=PAUSE_ALERT, text=describe_pause(self.run_dir))
        else:
            self.events.emit("alert.resolved", name=PAUSE_ALERT)

    async def _end_training(self, how: StopReason, text: str) -> str:
        hooks = self.step_hooks
        hooks.require_open()
        self._record_pause(False)
        await self._set_flow(RolloutFlow.DRAIN)
        hooks.request_stop(how)
        return text

    async def _set_flow(self, flow: RolloutFlow) -> None:
        while True:
            try:
                await self.scheduler_state.set_flow(flow)
            except RemoteError:
                await asyncio.sleep(RETRY_S)  # the scheduler is being restarted
            else:
                return

    # -- changed values ------------------------------------------------------------------------------------------

    async def _retune(self, request: ControlRequest) -> str:
        changed = diff_configs(self.config, apply_changes(self.config, request.changes))
        if not changed:
            raise UserError("the run already uses these values")
        if any(RETUNABLE_KEYS[change.key] is ChangePoint.STEP for change in changed):
            return await self.step_hooks.run_between_steps(lambda: self._apply_change(request))
        return await self._apply_change(request)

    async def _apply_change(self, request: ControlRequest) -> str:
        """Apply a new configuration; it is recorded first, so that a process that restarts meanwhile reads it."""
        after, step = apply_changes(self.config, request.changes), self.training.step
        changed = diff_configs(self.config, after)
        record_changes(
            self.run_dir, after, changed, first_step=step + 1, t=request.t, by=request.by, reason=request.reason
        )
        before, self.config = self.config, after
        self.apply_config(after)
        if after.learning_rate != before.learning_rate:
            await self.set_learning_rate_from(step + 1, after.learning_rate)
        if after.rollout_tuning != before.rollout_tuning:
            with suppress(RemoteError):  # the scheduler is being restarted; the state is sent again within seconds
                await self.scheduler_state.set_tuning(after.rollout_tuning)
        self._emit_changes(changed, request)
        return "; ".join(map(str, changed)) or "another request has already changed this"

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

    async def _drain_engine(self, engine: str) -> str:
        ended = await self.drain_engine(engine)
        what = "its requests finished" if ended else "its unfinished requests continue from the tokens they have"
        return f"{engine} is drained: {what}, and its server is replaced"

    async def _cancel(self, target: CancelTarget) -> str:
        try:
            samples = await self.scheduler.call(RolloutScheduler.cancel_samples, *target)
        except RemoteError as error:
            raise InfraError(f"the scheduler did not answer; repeat the request: {error}") from error
        await self.cancel_episodes([make_trajectory_id(target.group, sample) for sample in samples])
        what = f"group {target.group}" if target.sample is None else f"sample {target.sample} of group {target.group}"
        return f"{what} is cancelled: {len(samples)} rollouts end"
