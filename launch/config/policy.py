"""The model a run starts from, its warm start, and its checkpoints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from protocol.settings import ConfigSection, CountInt, PositiveInt, Share


class ModelSection(ConfigSection):
    path: Path | None = None
    """Hugging Face folder of a dense Qwen2.5 or Qwen3 with its tokenizer; without it the demo model is built."""
    layers: PositiveInt = 2
    """Layers of the demo model."""
    hidden: PositiveInt = 160
    """Hidden size of the demo model."""
    intermediate: PositiveInt = 512
    """Inner size of the demo model's MLP."""
    heads: PositiveInt = 4
    """Attention heads of the demo model; each has a key and a value head of its own."""
    head_dim: PositiveInt = 32
    """Size of one attention head of the demo model."""
    vocab_tokens: PositiveInt = 1024
    """Most tokens in the demo model's byte-level vocabulary; training its tokenizer may stop at fewer."""
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of the demo model's rotary embedding."""


class OverlongAction(StrEnum):
    """What becomes of a sequence that is longer than the learner takes."""

    ERROR = "error"
    """Nothing is trained."""
    DROP = "drop"
    """It is left out and counted."""
    TRUNCATE = "truncate"
    """Its end is cut off, and it is counted."""


class WarmStartSection(ConfigSection):
    """Supervised training before the first rollout: on scripted demonstrations, or on ``data``."""

    enabled: bool = True
    """Train the demo model on demonstrations first, or any model on ``data``; else a checkpoint starts as it is."""
    data: tuple[Path, ...] = ()
    """Conversations (``.jsonl``, ``.json``) and run directories in place of the demonstrations, as ``launch.sft`` takes
    them; ``batch_size``, ``lr`` and ``warmup_steps`` hold, the phases do not."""
    epochs: PositiveInt = 1
    """Times that each sequence of ``data`` is trained."""
    min_score: float | None = None
    """Least score of what is trained of ``data``; without it, whatever there is."""
    reward_weighted: bool = False
    """The weight of a sequence of ``data`` in the loss is its score."""
    overlong: OverlongAction = OverlongAction.ERROR
    """What becomes of a sequence of ``data`` that the learner cannot take: ``error``, ``drop`` or ``truncate``."""
    copy_steps: CountInt = 200
    """First phase: repeat a random string, with loss on its second half.  Without it the model does not learn to copy
    names into commands."""
    clean_steps: CountInt = 400
    """Second phase: correct demonstrations."""
    noisy_steps: CountInt = 200
    """Third phase: some demonstrations are corrupted, so that there is something left to learn from rewards."""
    noise: Share = 0.5
    """Share of corrupted demonstrations in the third phase, over all families."""
    noise_spread: Share = 0.0
    """How much more of the worst taught family's demonstrations are corrupted than of the average one's, and how much
    less of the best taught one's: families spread evenly between, in an order that the seed gives."""
    batch_size: PositiveInt = 32
    """Demonstrations in one step of the second and third phase."""
    copy_batch_size: PositiveInt = 64
    """Strings in one step of the first phase."""
    final_turn_every: PositiveInt = 8
    """Every how many batches the demonstrations include the turn that says the task is done."""
    lr: Annotated[float, Field(gt=0)] = 4e-3
    """Peak learning rate, reached after ``warmup_steps``, then a cosine to a twentieth; the rest of AdamW is the
    learner's."""
    warmup_steps: CountInt = 30
    """Steps of linear warm-up."""

    @model_validator(mode="after")
    def _spread(self) -> Self:
        if self.noise_spread > min(self.noise, 1 - self.noise):
            raise ValueError(
                f"warm_start.noise_spread = {self.noise_spread} takes some families' noise out of 0 to 1: with noise = "
                f"{self.noise} it is at most {min(self.noise, 1 - self.noise):g}"
            )
        return self

    @property
    def steps(self) -> int:
        """Of the demonstrations."""
        return self.copy_steps + self.clean_steps + self.noisy_steps


class CheckpointSection(ConfigSection):
    every_steps: PositiveInt = 4
    """Steps between two checkpoints; a crash repeats at most so many, and those taken while the last one is written."""
    keep: PositiveInt = 2
    """Newest checkpoints that stay on disk; a run goes on from one of these."""
    keep_first: bool = False
    """Keep the checkpoint of step 0 too, so that ``launch.replay`` can train the whole run again."""
    keep_every_steps: CountInt = 0
    """Keep the checkpoints of every so many steps too, for good; 0 for none."""
    keep_best: bool = False
    """Keep the checkpoint with the best score on held-out tasks too, of those whose weights were evaluated."""

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        if self.keep_every_steps % self.every_steps:
            nearest = max(1, round(self.keep_every_steps / self.every_steps)) * self.every_steps
            raise ValueError(
                f"checkpoint.keep_every_steps = {self.keep_every_steps} is no multiple of checkpoint.every_steps = "
                f"{self.every_steps}, and only those steps have a checkpoint: set keep_every_steps = {nearest}"
            )
        return self
