"""A run's reward function, composed of an outcome formula, process rules, a judge and a discount.

After an episode is graded, its :class:`RewardFunction` returns its reward and that of each turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self

from actors.engines.messages import GenerateFunction
from actors.rewards.episode_result import EpisodeResult
from actors.rewards.judge import JudgeScores, open_judge
from actors.rewards.judge_models import VoteFailure
from actors.rewards.outcome import OutcomeFormula
from actors.rewards.process_rules import score_turns
from actors.rewards.registry import find_outcome_reward
from actors.rewards.settings import JudgeSettings, ProcessRewardKind, RewardSettings, RewardSpec, RewardTarget
from actors.rewards.shaping import attach_turn_rewards, cap_turn_rewards, discounted_turn_rewards
from protocol.trajectory import Reward, Segment


class EpisodeReward(NamedTuple):
    """The reward of an episode and of each of its turns."""

    reward: Reward
    turns: tuple[float, ...]
    """Each turn's own reward, in addition to the episode's."""


class RewardFunction(Protocol):
    """Computes the reward of a graded episode."""

    async def compute_reward(self, result: EpisodeResult) -> EpisodeReward:
        """Return the reward of an episode.  Failures of a judge or a policy never raise."""
        ...


class EpisodeJudge(Protocol):
    """Scores the turns of an episode."""

    async def score_episode(self, result: EpisodeResult) -> JudgeScores:
        """Return the scores; failures of the judge never raise."""
        ...


class _RewardPart(NamedTuple):
    parts: dict[str, float]
    total: float
    turns: tuple[float, ...] = ()
    """Empty if no turn has a reward of its own."""


_OUTCOME_ALONE = RewardSettings()


@dataclass(frozen=True, slots=True)
class CompositeReward:
    """A :class:`RewardFunction` made from settings."""

    formula: OutcomeFormula
    settings: RewardSettings = _OUTCOME_ALONE
    judge: EpisodeJudge | None = None
    judge_settings: JudgeSettings | None = None
    """Settings for the use of the judge's scores."""

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
        """Return the same function without its judge, for evaluations, whose turns are not trained."""
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
            if settings.process_target is RewardTarget.TOTAL
            else _RewardPart(parts, 0.0, given)
        )

    async def _judged(self, result: EpisodeResult) -> _RewardPart:
        judging = self.judge_settings
        if self.judge is None or judging is None:
            return _RewardPart({}, 0.0)
        judged = await self.judge.score_episode(result)
        mean = judging.coefficient * judged.mean
        if judging.target is RewardTarget.TOTAL:
            return _RewardPart(_parts_of(judged, mean), mean)
        return _RewardPart(_parts_of(judged, mean), 0.0, _turn_rewards(judged.scores, judging))


def _turn_rewards(scores: Sequence[float | None], judging: JudgeSettings) -> tuple[float, ...]:
    return tuple(judging.coefficient * score if score is not None else 0.0 for score in scores)


def _parts_of(judged: JudgeScores, mean: float) -> dict[str, float]:
    failures = {f"judge_{kind}": float(judged.failures.get(kind, 0)) for kind in VoteFailure}
    return {"judge": mean, "judge_votes": float(judged.votes), **failures}


@asynccontextmanager
async def open_reward(
    spec: RewardSpec, judge_engines: Sequence[GenerateFunction] = ()
) -> AsyncGenerator[CompositeReward]:
    """Open a worker's reward function; ``judge_engines`` serve a judge of the run's own.  Raises UserError for an
    unknown outcome, or for a judge without a usable tokenizer."""
    formula = find_outcome_reward(spec.outcome, spec.settings.bonus).formula
    if spec.judge is None:
        yield CompositeReward(formula, spec.settings)
        return
    async with open_judge(spec.judge, judge_engines) as judge:
        yield CompositeReward(formula, spec.settings, judge, spec.judge.settings)


async def apply_reward(
    reward_function: RewardFunction, result: EpisodeResult, segments: Sequence[Segment], order: Sequence[int]
) -> tuple[Reward, tuple[Segment, ...]]:
    """Return the reward of an episode, and its segments with the reward of each turn.

    ``order`` holds the number of each of the model's turns, in the order of the segments."""
    episode_reward = await reward_function.compute_reward(result)
    return episode_reward.reward, attach_turn_rewards(segments, [episode_reward.turns[number] for number in order])
