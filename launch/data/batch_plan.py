"""Order of the sequences of supervised training.  Pure, so that a resumed run trains the same batches."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Each epoch trains every sequence once, in its own random order; its last batch may be smaller."""

    sequences: int
    epochs: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.sequences // self.batch_size)

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def batch(self, step: int) -> tuple[int, ...]:
        """Return the indices of the sequences of ``step``, counted from 1."""
        epoch, batch = divmod(step - 1, self.steps_per_epoch)
        return _order(self.seed, epoch, self.sequences)[batch * self.batch_size : (batch + 1) * self.batch_size]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, sequences: int) -> tuple[int, ...]:
    return tuple(random.Random(f"sft {seed}/{epoch}").sample(range(sequences), sequences))
