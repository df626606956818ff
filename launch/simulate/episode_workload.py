"""Plans of simulated episodes, drawn from distributions or taken from a recorded run."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple, Protocol

from protocol.trajectory import RolloutRequest

_NORMAL = NormalDist()


class TurnPlan(NamedTuple):
    tokens: int
    """Number of sampled tokens."""
    generate_s: float
    """Sampling time on an engine at its reference load."""
    tool_s: float
    """Time of the tool call in the sandbox."""


class EpisodePlan(NamedTuple):
    acquire_s: float
    turns: Sequence[TurnPlan]
    grade_s: float
    """Time for grading, sending and the acknowledgement."""
    reward: float

    @property
    def tokens(self) -> int:
        return sum(turn.tokens for turn in self.turns)


class EpisodeWorkload(Protocol):
    def plan_episode(self, rollout_request: RolloutRequest) -> EpisodePlan:
        """Return the same plan for every attempt of a rollout request."""
        ...


@dataclass(frozen=True, slots=True)
class DrawnWorkload:
    """Log-normal episodes.  ``median_s`` and its quantiles are those of an episode whose tokens come at
    ``tokens_per_s``; a loaded engine makes it longer."""

    median_s: float
    p95_over_median: float
    cut_over_median: float
    """The time limit over the median; longer episodes are cut off there."""
    turns: tuple[int, int]
    """Minimum and maximum number of turns; long episodes tend to have more."""
    generate_share: float
    """Share of an episode's time that is sampling; the rest is tool time."""
    tokens_per_s: float
    within_task: float
    """Correlation of the log-durations of a group's episodes."""
    reward: tuple[float, float]
    """α and β of the Beta distribution of the tasks' pass rates."""
    seed: int

    def plan_episode(self, rollout_request: RolloutRequest) -> EpisodePlan:
        task = random.Random(f"{self.seed}/{rollout_request.group}")
        rng = random.Random(rollout_request.seed)
        passes, z_task = task.betavariate(*self.reward), task.gauss(0.0, 1.0)
        z = math.sqrt(self.within_task) * z_task + math.sqrt(1 - self.within_task) * rng.gauss(0.0, 1.0)
        sigma = math.log(self.p95_over_median) / _NORMAL.inv_cdf(0.95)
        seconds = self.median_s * min(math.exp(sigma * z), self.cut_over_median)
        generate = self._pieces(rng, self._turns(z, rng), seconds * self.generate_share)
        tool = self._pieces(rng, len(generate) + 2, seconds * (1 - self.generate_share))
        turns = [
            TurnPlan(max(1, round(generate_s * self.tokens_per_s)), generate_s, tool_s)
            for generate_s, tool_s in zip(generate, tool[1:], strict=False)
        ]
        return EpisodePlan(tool[0], turns, tool[-1], float(rng.random() < passes))

    def _turns(self, z: float, rng: random.Random) -> int:
        least, most = self.turns
        rank = _NORMAL.cdf(_TURNS_FOLLOW * z + math.sqrt(1 - _TURNS_FOLLOW**2) * rng.gauss(0.0, 1.0))
        return round(least * (most / least) ** rank**2)

    @staticmethod
    def _pieces(rng: random.Random, count: int, total: float) -> list[float]:
        weights = [rng.expovariate(1.0) for _ in range(count)]
        scale = total / sum(weights)
        return [weight * scale for weight in weights]


_TURNS_FOLLOW = 0.8
"""Correlation of an episode's number of turns with its log-duration."""


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """Episodes of a recorded run, by group and sample; after the last recorded group the first one comes again."""

    episodes: Mapping[tuple[int, int], EpisodePlan]
    groups: int

    def plan_episode(self, rollout_request: RolloutRequest) -> EpisodePlan:
        return self.episodes[rollout_request.group % self.groups, rollout_request.sample]
