"""What episodes do: drawn from distributions, or as a real run recorded it."""

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
    """Sampled in this turn."""
    generate_s: float
    """Of an engine at its reference load."""
    tool_s: float
    """The sandbox's answer."""


class EpisodePlan(NamedTuple):
    acquire_s: float
    turns: Sequence[TurnPlan]
    grade_s: float
    """Grading, sending and the acknowledgement."""
    reward: float

    @property
    def tokens(self) -> int:
        return sum(turn.tokens for turn in self.turns)


class EpisodeWorkload(Protocol):
    def plan_episode(self, ticket: RolloutRequest) -> EpisodePlan:
        """The same for the same ticket, whatever attempt it is."""
        ...


@dataclass(frozen=True, slots=True)
class DrawnWorkload:
    """Log-normal episodes.  ``median_s`` and its quantiles are those of an episode whose tokens come at
    ``tokens_per_s``; a loaded engine makes it longer."""

    median_s: float
    p95_over_median: float
    cut_over_median: float
    """An episode that would take longer is ended there, by its time limit."""
    turns: tuple[int, int]
    """Fewest and most; long episodes tend to have more, and few have many."""
    generate_share: float
    """Of an episode's time that is sampling; the rest is the sandbox's."""
    tokens_per_s: float
    within_task: float
    """Correlation of the log-durations of one group's episodes."""
    reward: tuple[float, float]
    """α and β: a task's pass rate is Beta-distributed."""
    seed: int

    def plan_episode(self, ticket: RolloutRequest) -> EpisodePlan:
        task = random.Random(f"{self.seed}/{ticket.group}")
        rng = random.Random(ticket.seed)
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
    """Episodes of a real run, by group and sample; a group beyond the last recorded one begins again with the first."""

    episodes: Mapping[tuple[int, int], EpisodePlan]
    groups: int

    def plan_episode(self, ticket: RolloutRequest) -> EpisodePlan:
        return self.episodes[ticket.group % self.groups, ticket.sample]
