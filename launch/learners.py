"""The learner's ranks as one: every rank makes every call, rank 0 answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from actors.remote import Remote
from learner.rank import LearnerRank

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Learners:
    ranks: tuple[Remote[LearnerRank], ...]

    async def call(self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``method`` on every rank at once.  Raises what a rank raised first, ActorDied among others."""
        refs = [rank.ref(method, *args, **kwargs) for rank in self.ranks]
        try:
            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(ref.get()) for ref in refs]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return answers[0].result()
