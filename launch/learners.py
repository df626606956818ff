"""The learner's ranks as one: every rank makes every call, rank 0 answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from actors.remote import Remote, RemoteError
from learner.rank import LearnerRank

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Learners:
    ranks: tuple[Remote[LearnerRank], ...]
    call_timeout_s: float
    """No call takes longer; ranks that need more hang."""

    async def call(self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``method`` on every rank at once.  Raises what a rank raised first, ActorDied among others; RemoteError when
        not all have answered in time."""
        refs = [rank.ref(method, *args, **kwargs) for rank in self.ranks]
        try:
            async with asyncio.timeout(self.call_timeout_s), asyncio.TaskGroup() as group:
                answers = [group.create_task(ref.get()) for ref in refs]
        except TimeoutError as error:
            why = f"{method.__name__} has not ended within learner.call_timeout_s = {self.call_timeout_s:g} s"
            raise RemoteError(self.ranks[0].name, why) from error
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return answers[0].result()
