"""The learning rate of supervised training.  Pure."""

from __future__ import annotations

import math

from launch.config import SftConfig
from launch.settings.sft import LearningRateSchedule
from learner.spec import warmup_factor


def scheduled_learning_rate(config: SftConfig, step: int, steps: int) -> float:
    """Return the learning rate of ``step``, counted from 1, of ``steps``: the learner's warm-up times the schedule."""
    learner = config.learner
    warmup, progress = warmup_factor(step, learner.lr_warmup_steps), (step - 1) / steps
    match config.sft.schedule:
        case LearningRateSchedule.CONSTANT:
            remaining = 1.0
        case LearningRateSchedule.LINEAR:
            remaining = 1 - progress
        case LearningRateSchedule.COSINE:
            remaining = (1 + math.cos(math.pi * progress)) / 2
    end = learner.lr_end or 0.0
    return warmup * (end + (learner.lr - end) * remaining)
