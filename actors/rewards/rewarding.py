"""What a run's rewards are, put together: an outcome, rules of process, a judge, a discount.

An episode asks one :class:`Rewarding` once, when it has been graded, and gets its reward and that of each of its turns.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from actors.rewards.judge import Judge, Judged, VoteFailure
from actors.rewards.named import named
from actors.rewards.outcome import Formula, binary
from actors.rewards.played import Played
from actors.rewards.process import marks
from actors.rewards.settings import Into, JudgeSettings, Process, RewardSettings
from actors.rewards.shaping import capped, discounted, with_turn_rewards
from protocol.trajectory import Reward, Segment


class Worth(NamedTuple):
    reward: Reward
    turns: tuple[float, ...]
    """Each turn's own reward, beside the episode's."""


class Rewarding(Protocol):
    async def worth(self, played: Played) -> Worth:
        """What an episode is worth.  Raises nothing for what a judge or a policy does."""
        ...


class Judging(Protocol):
    async def judged(self, played: Played) -> Judged: ...


class _Added(NamedTuple):
    parts: dict[str, float]
    total: float
    turns: tuple[float, ...] = ()
    """Empty for none."""


_NOTHING_MORE = RewardSettings()


@dataclass(frozen=True, slots=True)
class Rewards:
    """A :class:`Rewarding` by settings."""

    formula: Formula
    settings: RewardSettings = _NOTHING_MORE
    judge: Judging | None = None

    async def worth(self, played: Played) -> Worth:
        outcome = self.formula(played)
        added = [self._process(played), await self._judged(played)]
        parts = {**outcome.parts}
        for each in added:
            parts |= each.parts
        own = [discounted(outcome.total, len(played.turns), self.settings.discount), *(each.turns for each in added)]
        total = outcome.total + sum(each.total for each in added)
        return Worth(Reward(total, parts), tuple(map(sum, zip(*filter(None, own), strict=True))))

    def unjudged(self) -> Self:
        """The same without a judge: for evaluations, whose turns nobody trains."""
        return replace(self, judge=None)

    def _process(self, played: Played) -> _Added:
        settings = self.settings
        if settings.process is Process.NONE:
            return _Added({}, 0.0)
        found = marks(played.turns)
        given = capped(found.turns, settings.process_cap)
        parts = {"process": sum(given), **{f"process_{name}": value for name, value in found.rules.items()}}
        return _Added(parts, sum(given)) if settings.process_into is Into.TOTAL else _Added(parts, 0.0, given)

    async def _judged(self, played: Played) -> _Added:
        judging = self.settings.judge
        if self.judge is None or judging is None:
            return _Added({}, 0.0)
        judged = await self.judge.judged(played)
        mean = judging.coefficient * judged.mean
        if judging.into is Into.TOTAL:
            return _Added(_parts_of(judged, mean), mean)
        return _Added(_parts_of(judged, mean), 0.0, _of_turns(judged.scores, judging))


def _of_turns(scores: Sequence[float | None], judging: JudgeSettings) -> tuple[float, ...]:
    return tuple(judging.coefficient * score if score is not None else 0.0 for score in scores)


def _parts_of(judged: Judged, mean: float) -> dict[str, float]:
    failures = {f"judge_{kind}": float(judged.failures.get(kind, 0)) for kind in VoteFailure}
    return {"judge": mean, "judge_votes": float(judged.votes), **failures}


PLAIN = Rewards(binary)
"""What there is without being asked for."""


@asynccontextmanager
async def open_rewards(settings: RewardSettings) -> AsyncGenerator[Rewards]:
    """A worker's rewards, with a judge that is asked over its own connections.  Raises UserError for a name that is
    none."""
    formula = named(settings.outcome, settings.bonus).formula
    if settings.judge is None:
        yield Rewards(formula, settings)
        return
    async with Judge(settings.judge) as judge:
        yield Rewards(formula, settings, judge)


async def rewarded(
    rewarding: Rewarding, played: Played, segments: Sequence[Segment], order: Sequence[int]
) -> tuple[Reward, tuple[Segment, ...]]:
    """The reward of an episode, and its segments with that of each turn; ``order`` has the turns' numbers as they stand
    in the segments."""
    worth = await rewarding.worth(played)
    return worth.reward, with_turn_rewards(segments, [worth.turns[number] for number in order])
