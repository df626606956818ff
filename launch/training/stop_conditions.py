"""Decides whether training is to end before its last step: a person's request, or a limit of ``[stop]``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from launch.control.step_hooks import StepHooks, StopReason
from launch.run_records.metrics_log import read_budget_usage
from launch.run_records.step_facts import BudgetUsage
from launch.training.budget import first_limit_reached
from launch.training.state import TrainingState


@dataclass(slots=True, kw_only=True)
class StopConditions:
    state: TrainingState
    buffer: Remote[TrajectoryBuffer]
    step_hooks: StepHooks
    sampled_tokens: Callable[[], Awaitable[int]]
    """Returns the number of tokens that the engines have sampled so far."""
    _started_at: float = 0.0
    _sampled_before: int = 0
    """Tokens that the engines had sampled when training started."""
    _used_before: BudgetUsage = field(default_factory=BudgetUsage)
    """Usage of earlier starts."""

    async def start(self) -> None:
        """Start to count this start's usage."""
        self._started_at, self._sampled_before = time.monotonic(), await self.sampled_tokens()
        self._used_before = read_budget_usage(self.state.run_dir)

    async def find_met(self) -> str | None:
        """Return the condition that is met, for people, and set the state's stop reason; None if none is."""
        state, stop = self.state, self.state.config.stop
        if self.step_hooks.requested_stop is StopReason.STOPPED_BY_REQUEST:
            state.stop_reason = StopReason.STOPPED_BY_REQUEST
            return "it was requested"
        tokens = acknowledged = 0
        if stop.after_tokens:
            tokens = self._used_before.tokens + await self.sampled_tokens() - self._sampled_before
        if stop.after_trajectories:
            acknowledged = (await self.buffer.call(TrajectoryBuffer.accounting)).acknowledged
        usage = BudgetUsage(tokens, self._used_before.seconds + time.monotonic() - self._started_at)
        if (limit := first_limit_reached(stop, state.step, acknowledged, usage)) is not None:
            state.stop_reason = StopReason.BUDGET
        return limit
