"""Delays of the first command of an episode, drawn by task and sample, so that every mode has the same delays."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Self

import orjson

_Z95 = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True)
class ToolDelays:
    """A log-normal distribution with median ``median_s`` and 95th percentile ``p95_s``."""

    key: str
    """Seed of the delays: equal keys give equal delays."""
    median_s: float
    p95_s: float

    def draw_delay_s(self, task: str, sample: int) -> float:
        """Return the delay in seconds."""
        sigma = math.log(self.p95_s / self.median_s) / _Z95
        return random.Random(f"{self.key}/{task}/{sample}").lognormvariate(math.log(self.median_s), sigma)

    def to_json(self) -> str:
        """Return the delays as JSON for another process."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**orjson.loads(text))
