"""The learner's ranks as one: every rank makes every call, rank 0 answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar, cast

from actors.remote import Ref, Remote, RemoteError
from learner.rank import LearnerRank

P = ParamSpec("P")
R = TypeVar("R")

_OTHERS_S = 10.0
"""Once a rank has failed: longest wait for the others, whose answers tell which of them is the cause."""


@dataclass(frozen=True, slots=True)
class Learners:
    ranks: tuple[Remote[LearnerRank], ...]
    call_timeout_s: float
    """No call takes longer; ranks that need more hang."""

    async def call(self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``method`` on every rank at once.  Raises the death of a rank, which makes the exchanges of the others fail;
        else what a rank raised first; RemoteError when not all have answered in time."""
        refs = [rank.ref(method, *args, **kwargs) for rank in self.ranks]
        answers: list[asyncio.Task[R | None]] = []
        failures: list[Exception] = []
        try:
            async with asyncio.timeout(self.call_timeout_s) as limit, asyncio.TaskGroup() as group:
                answers += [group.create_task(_answer(ref, failures, limit)) for ref in refs]
        except TimeoutError as error:
            if not failures:
                why = f"{method.__name__} has not ended within learner.call_timeout_s = {self.call_timeout_s:g} s"
                raise RemoteError(self.ranks[0].name, why) from error
        if failures:
            raise next((each for each in failures if isinstance(each, RemoteError)), failures[0])
        return cast("R", answers[0].result())


async def _answer(ref: Ref[R], failures: list[Exception], limit: asyncio.Timeout) -> R | None:
    """Where it fails, the other ranks have ``_OTHERS_S`` from then on."""
    try:
        return await ref.get()
    except Exception as error:  # noqa: BLE001  # it is raised when it is known whether a rank has died
        failures.append(error)
        limit.reschedule(min(limit.when() or math.inf, asyncio.get_running_loop().time() + _OTHERS_S))
        return None
