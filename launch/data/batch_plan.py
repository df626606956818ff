"""Which sequences are trained in which step, and with what learning rate.  Pure: a resumed run reads the same."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache

from launch.config.sft import LearningRateSchedule, SftConfig
from learner.spec import warmup_factor


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Each epoch takes every sequence once, in an order of its own; its last batch may be smaller."""

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
        """Indices of the sequences of ``step``, counted from 1."""
        epoch, batch = divmod(step - 1, self.steps_per_epoch)
        return _order(self.seed, epoch, self.sequences)[batch * self.batch_size : (batch + 1) * self.batch_size]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, sequences: int) -> tuple[int, ...]:
    return tuple(random.Random(f"sft {seed}/{epoch}").sample(range(sequences), sequences))


def scheduled_learning_rate(config: SftConfig, step: int, steps: int) -> float:
    """Of ``step``, counted from 1: the learner's own warm-up, times the schedule."""
    learner = config.learner
    warm, done = warmup_factor(step, learner.lr_warmup_steps), (step - 1) / steps
    match config.sft.schedule:
        case LearningRateSchedule.CONSTANT:
            left = 1.0
        case LearningRateSchedule.LINEAR:
            left = 1 - done
        case LearningRateSchedule.COSINE:
            left = (1 + math.cos(math.pi * done)) / 2
    end = learner.lr_end or 0.0
    return warm * (end + (learner.lr - end) * left)
