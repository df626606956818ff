"""How long the first command of an episode waits: drawn by task and sample, so that every arm has the same waits."""

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
    """Log-normal: half of the waits are shorter than ``median_s``, 95 of 100 shorter than ``p95_s``."""

    key: str
    """Who has the same has the same waits."""
    median_s: float
    p95_s: float

    def draw_delay_s(self, task: str, sample: int) -> float:
        """Seconds."""
        sigma = math.log(self.p95_s / self.median_s) / _Z95
        return random.Random(f"{self.key}/{task}/{sample}").lognormvariate(math.log(self.median_s), sigma)

    def to_json(self) -> str:
        """As another process can be told them."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**orjson.loads(text))
