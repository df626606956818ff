"""Supervised training of its own: what ``launch.sft`` is told."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from launch.config.policy import OverlongAction
from launch.config.run import RunName
from learner.settings import LoraSettings, TrainerSettings
from protocol.run_directory.layout import DEFAULT_RUNS_FOLDER
from protocol.settings import ConfigSection, CountInt, PositiveInt


class LearningRateSchedule(StrEnum):
    """The learning rate's way from ``learner.lr`` to ``learner.lr_end``, where a step after the last would be."""

    CONSTANT = "constant"
    """It stays."""
    LINEAR = "linear"
    COSINE = "cosine"


class SftRunSection(ConfigSection):
    name: RunName = "sft"
    """First part of the default run id."""
    seed: CountInt = 0
    """Seed of the order in which sequences are trained."""
    dir: Path = DEFAULT_RUNS_FOLDER
    """Folder of all runs, on a local disk."""
    disk_reserve_mb: PositiveInt = 512
    """Free space in ``dir`` below which nothing is begun."""


class SftSection(ConfigSection):
    model: Path | None = None
    """Hugging Face folder of a dense Qwen2.5 or Qwen3 with its tokenizer."""
    data: tuple[Path, ...] = ()
    """Conversations (``.jsonl``, a record a line, or ``.json``) and run directories, whose trajectories are taken."""
    eval_data: tuple[Path, ...] = ()
    """The same, held out: their loss is taken before, after and every ``eval_every_steps``."""
    output: Path | None = None
    """Where the trained model's folder appears; without it, ``model`` in the run's directory."""
    adapters: Path | None = None
    """Where the adapters alone appear too, as PEFT's folder; without it they are only merged into the model."""
    min_score: float | None = None
    """Least score of what is trained; without it, whatever there is."""
    reward_weighted: bool = False
    """A sequence's weight in the loss is its score, which may not be below 0, times its own ``weight``."""
    epochs: PositiveInt = 1
    """Times that each sequence is trained."""
    batch_size: PositiveInt = 32
    """Sequences in an optimizer step."""
    max_tokens: CountInt = 0
    """Longest sequence; 0 for what model and ``learner.micro_batch_tokens`` hold."""
    overlong: OverlongAction = OverlongAction.ERROR
    """What becomes of a longer one: ``error``, ``drop`` or ``truncate``."""
    schedule: LearningRateSchedule = LearningRateSchedule.COSINE
    """Way of the learning rate after ``learner.lr_warmup_steps``: ``constant``, or ``linear`` or ``cosine`` to
    ``learner.lr_end`` (0 without it)."""
    eval_every_steps: CountInt = 0
    """Steps between two losses of ``eval_data``; 0 for those before and after alone."""


class SftLearnerSection(TrainerSettings):
    """The learner of supervised training; its learning rate has another default."""

    lr: Annotated[float, Field(ge=0)] = 1e-5
    """AdamW's learning rate after the warm-up."""


class SftCheckpointSection(ConfigSection):
    every_steps: PositiveInt = 50
    """Steps between two checkpoints; a crash repeats at most so many.  The last step has one too."""
    keep: PositiveInt = 2
    """Newest checkpoints that stay on disk."""


class SftConfig(ConfigSection):
    run: SftRunSection = SftRunSection()
    sft: SftSection = SftSection()
    learner: SftLearnerSection = SftLearnerSection()
    lora: LoraSettings = LoraSettings()
    checkpoint: SftCheckpointSection = SftCheckpointSection()

    @property
    def max_sequence_tokens(self) -> int:
        """Of a sequence, as far as the learner is concerned."""
        room = self.learner.sequence_tokens
        return min(self.sft.max_tokens, room) if self.sft.max_tokens else room

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found, learner = list[str](), self.learner
        most, room = self.sft.max_tokens, learner.sequence_tokens
        if most > room:
            found.append(
                f"sft.max_tokens = {most} is more than learner.micro_batch_tokens × learner.cp = {room}: "
                f"set learner.micro_batch_tokens = {-(-most // learner.cp)}, or raise learner.cp"
            )
        if self.sft.schedule is LearningRateSchedule.CONSTANT and learner.lr_end is not None:
            found.append(
                "sft.schedule = 'constant' never reaches learner.lr_end: set sft.schedule = 'linear', or leave it out"
            )
        if self.sft.eval_every_steps and not self.sft.eval_data:
            found.append("sft.eval_every_steps has nothing to take the loss of: give --eval-data, or leave it out")
        if self.sft.adapters is not None and not self.lora.enabled:
            found.append("sft.adapters has no adapters to write: set lora.rank = 16, say, or leave it out")
        if found:
            raise ValueError("; also: ".join(found))
        return self
