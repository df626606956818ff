"""Settings of supervised training: ``[run]``, ``[sft]``, ``[learner]`` and ``[checkpoint]`` of ``longshore sft``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from launch.settings.checkpoint import NewestCheckpointsSettings
from launch.settings.data import SequenceSettings
from launch.settings.run_directory import RunDirectorySettings, RunNamePrefix
from learner.settings import TrainerSettings
from protocol.run_directory.run_arguments import RunFolder
from protocol.settings import CountInt, PositiveInt


class LearningRateSchedule(StrEnum):
    """The learning rate from ``learner.lr`` to ``learner.lr_end``, which a step after the last one would have."""

    CONSTANT = "constant"
    """It stays at ``learner.lr``."""
    LINEAR = "linear"
    COSINE = "cosine"


class SftRunSettings(RunDirectorySettings):
    name: RunNamePrefix = "sft"
    """First part of the default run id."""


class SftSettings(SequenceSettings):
    model: Path | None = None
    """Hugging Face folder of a dense Qwen2.5 or Qwen3 with its tokenizer."""
    data: tuple[RunFolder, ...] = ()
    """Conversations (``.jsonl`` with one record a line, ``.json`` or ``.parquet``) and runs, by directory or id,
    whose trajectories are used."""
    eval_data: tuple[RunFolder, ...] = ()
    """Held-out data of the same kinds; its loss is computed before, after and every ``eval_every_steps``."""
    output: Path | None = None
    """Folder that the trained model is written to; without it, ``model`` in the run's directory."""
    adapters: Path | None = None
    """Folder that the adapters are written to as well, in PEFT's format; without it they are only merged into the
    model."""
    max_tokens: CountInt = 0
    """Maximum length of a sequence; 0 for what model and ``learner.micro_batch_tokens`` hold."""
    schedule: LearningRateSchedule = LearningRateSchedule.COSINE
    """Learning rate after ``learner.lr_warmup_steps``: ``constant``, or ``linear`` or ``cosine`` to ``learner.lr_end``
    (0 without it)."""
    eval_every_steps: CountInt = 0
    """Steps between two losses of ``eval_data``; 0 for before and after training only."""


class SftLearnerSettings(TrainerSettings):
    lr: Annotated[float, Field(ge=0)] = 1e-5
    """Learning rate of AdamW after the warm-up."""


class SftCheckpointSettings(NewestCheckpointsSettings):
    every_steps: PositiveInt = 50
    """Steps between two checkpoints; a crash repeats at most these.  The last step has one too."""
