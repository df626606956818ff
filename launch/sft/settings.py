"""Settings of supervised training: ``[run]``, ``[sft]``, ``[learner]`` and ``[checkpoint]`` of ``launch.sft``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from launch.data.settings import OverlongAction
from launch.run_records.settings import RunDirectorySettings, RunNamePrefix
from learner.settings import TrainerSettings
from protocol.settings import ConfigSection, CountInt, PositiveInt


class LearningRateSchedule(StrEnum):
    """The learning rate from ``learner.lr`` to ``learner.lr_end``, which a step after the last one would have."""

    CONSTANT = "constant"
    """It stays at ``learner.lr``."""
    LINEAR = "linear"
    COSINE = "cosine"


class SftRunSettings(RunDirectorySettings):
    name: RunNamePrefix = "sft"
    """First part of the default run id."""


class SftSettings(ConfigSection):
    model: Path | None = None
    """Hugging Face folder of a dense Qwen2.5 or Qwen3 with its tokenizer."""
    data: tuple[Path, ...] = ()
    """Conversations (``.jsonl`` with one record a line, or ``.json``) and run directories, whose trajectories are
    used."""
    eval_data: tuple[Path, ...] = ()
    """Held-out data of the same kinds; its loss is computed before, after and every ``eval_every_steps``."""
    output: Path | None = None
    """Folder that the trained model is written to; without it, ``model`` in the run's directory."""
    adapters: Path | None = None
    """Folder that the adapters are written to as well, in PEFT's format; without it they are only merged into the
    model."""
    min_score: float | None = None
    """Minimum score of the sequences that are trained; without it all are."""
    reward_weighted: bool = False
    """Weight each sequence in the loss by its score, which may not be negative, times its own ``weight``."""
    epochs: PositiveInt = 1
    """Number of passes over the data."""
    batch_size: PositiveInt = 32
    """Sequences in one optimizer step."""
    max_tokens: CountInt = 0
    """Maximum length of a sequence; 0 for what model and ``learner.micro_batch_tokens`` hold."""
    overlong: OverlongAction = OverlongAction.ERROR
    """Action on a longer sequence: ``error``, ``drop`` or ``truncate``."""
    schedule: LearningRateSchedule = LearningRateSchedule.COSINE
    """Learning rate after ``learner.lr_warmup_steps``: ``constant``, or ``linear`` or ``cosine`` to ``learner.lr_end``
    (0 without it)."""
    eval_every_steps: CountInt = 0
    """Steps between two losses of ``eval_data``; 0 for before and after training only."""


class SftLearnerSettings(TrainerSettings):
    lr: Annotated[float, Field(ge=0)] = 1e-5
    """Learning rate of AdamW after the warm-up."""


class SftCheckpointSettings(ConfigSection):
    every_steps: PositiveInt = 50
    """Steps between two checkpoints; a crash repeats at most these.  The last step has one too."""
    keep: PositiveInt = 2
    """Number of newest checkpoints that stay on disk."""
