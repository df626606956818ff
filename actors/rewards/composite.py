"""What a run's rewards are, put together: an outcome, rules of process, a judge, a discount.

An episode asks one :class:`Rewarding` once, when it has been graded, and gets its reward and that of each of its turns.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from actors.rewards.episode_result import EpisodeResult
from actors.rewards.judge import Judge, JudgeScores, VoteFailure
from actors.rewards.outcome import OutcomeFormula, binary
from actors.rewards.process_rules import score_turns
from actors.rewards.registry import find_outcome_reward
from actors.rewards.settings import JudgeSettings, ProcessRewardKind, RewardSettings, RewardTarget
from actors.rewards.shaping import attach_turn_rewards, cap_turn_rewards, discounted_turn_rewards
from protocol.trajectory import Reward, Segment


class EpisodeReward(NamedTuple):
    reward: Reward
    turns: tuple[float, ...]
    """Each turn's own reward, beside the episode's."""


class RewardFunction(Protocol):
    async def compute_reward(self, result: EpisodeResult) -> EpisodeReward:
        """What an episode is worth.  Raises nothing for what a judge or a policy does."""
        ...


class EpisodeJudge(Protocol):
    async def score_episode(self, result: EpisodeResult) -> JudgeScores: ...


class _RewardPart(NamedTuple):
    parts: dict[str, float]
    total: float
    turns: tuple[float, ...] = ()
    """Empty for none."""


_NOTHING_MORE = RewardSettings()


@dataclass(frozen=True, slots=True)
class CompositeReward:
    """A :class:`Rewarding` by settings."""

    formula: OutcomeFormula
    settings: RewardSettings = _NOTHING_MORE
    judge: EpisodeJudge | None = None

    async def compute_reward(self, result: EpisodeResult) -> EpisodeReward:
        outcome = self.formula(result)
        added = [self._process(result), await self._judged(result)]
        parts = {**outcome.parts}
        for each in added:
            parts |= each.parts
        own = [
            discounted_turn_rewards(outcome.total, len(result.turns), self.settings.discount),
            *(each.turns for each in added),
        ]
        total = outcome.total + sum(each.total for each in added)
        return EpisodeReward(Reward(total, parts), tuple(map(sum, zip(*filter(None, own), strict=True))))

    def without_judge(self) -> Self:
        """The same without a judge: for evaluations, whose turns nobody trains."""
        return replace(self, judge=None)

    def _process(self, result: EpisodeResult) -> _RewardPart:
        settings = self.settings
        if settings.process is ProcessRewardKind.NONE:
            return _RewardPart({}, 0.0)
        found = score_turns(result.turns)
        given = cap_turn_rewards(found.turns, settings.process_cap)
        parts = {"process": sum(given), **{f"process_{name}": value for name, value in found.rules.items()}}
        return (
            _RewardPart(parts, sum(given))
            if settings.process_into is RewardTarget.TOTAL
            else _RewardPart(parts, 0.0, given)
        )

    async def _judged(self, result: EpisodeResult) -> _RewardPart:
        judging = self.settings.judge
        if self.judge is None or judging is None:
            return _RewardPart({}, 0.0)
        judged = await self.judge.score_episode(result)
        mean = judging.coefficient * judged.mean
        if judging.into is RewardTarget.TOTAL:
            return _RewardPart(_parts_of(judged, mean), mean)
        return _RewardPart(_parts_of(judged, mean), 0.0, _of_turns(judged.scores, judging))


def _of_turns(scores: Sequence[float | None], judging: JudgeSettings) -> tuple[float, ...]:
    return tuple(judging.coefficient * score if score is not None else 0.0 for score in scores)


def _parts_of(judged: JudgeScores, mean: float) -> dict[str, float]:
    failures = {f"judge_{kind}": float(judged.failures.get(kind, 0)) for kind in VoteFailure}
    return {"judge": mean, "judge_votes": float(judged.votes), **failures}


BINARY_REWARD = CompositeReward(binary)
"""What there is without being asked for."""


@asynccontextmanager
async def open_reward(settings: RewardSettings) -> AsyncGenerator[CompositeReward]:
    """A worker's rewards, with a judge that is asked over its own connections.  Raises UserError for a name that is
    none."""
    formula = find_outcome_reward(settings.outcome, settings.bonus).formula
    if settings.judge is None:
        yield CompositeReward(formula, settings)
        return
    async with Judge(settings.judge) as judge:
        yield CompositeReward(formula, settings, judge)


async def apply_reward(
    reward_function: RewardFunction, result: EpisodeResult, segments: Sequence[Segment], order: Sequence[int]
) -> tuple[Reward, tuple[Segment, ...]]:
    """The reward of an episode, and its segments with that of each turn; ``order`` has the turns' numbers as they stand
    in the segments."""
    worth = await reward_function.compute_reward(result)
    return worth.reward, attach_turn_rewards(segments, [worth.turns[number] for number in order])
