"""Calls to the learner; on a colocated device each call first moves the device from the engines to the learner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from launch.actor_group.learner_group import LearnerGroup
from launch.evaluation.held_out.online_evaluator import EvaluationHooks
from launch.weight_sync.colocation import ColocationManager
from learner.rank import LearnerRank

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(slots=True, kw_only=True)
class LearnerClient:
    """Calls the learner's ranks, with the device moved to them first where it is shared."""

    ranks: LearnerGroup
    start_ranks: Callable[[], Awaitable[LearnerGroup]]
    """Ends the ranks and starts new ones."""
    colocation: ColocationManager
    online_evaluation: EvaluationHooks

    async def call(self, method: Callable[Concatenate[LearnerRank, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call all ranks while they hold the device."""
        await self.acquire_device()
        return await self.ranks.call(method, *args, **kwargs)

    async def acquire_device(self) -> None:
        """Move a colocated device to the learner, after any evaluation that the engines still run."""
        if self.colocation.colocated and not self.colocation.learner_active:
            await self.online_evaluation.wait_idle()
        await self.colocation.switch_to_learner()

    async def offload(self) -> None:
        """Move the learner's memory off a colocated device."""
        if self.colocation.colocated:
            await self.ranks.call(LearnerRank.offload_to_host)

    async def restart(self) -> None:
        """Replace the ranks, which keep the device during this."""
        await self.acquire_device()
        self.ranks = await self.start_ranks()
