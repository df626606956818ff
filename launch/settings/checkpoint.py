"""Settings of checkpoints: ``[checkpoint]``."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from protocol.settings import ConfigSection, CountInt, PositiveInt


class NewestCheckpointsSettings(ConfigSection):
    """Number of newest checkpoints that stay on disk."""

    keep: PositiveInt = 2
    """Number of newest checkpoints that stay on disk; a run resumes from one of these."""


class RetentionSettings(NewestCheckpointsSettings):
    """Rule which checkpoints stay on disk (:mod:`launch.checkpoints.retention`)."""

    keep_first: bool = False
    """Keep the checkpoint of step 0 too, so that ``longshore replay`` can train the whole run again."""
    keep_every_steps: CountInt = 0
    """Keep every checkpoint whose step is a multiple of this too, for good; 0 for none."""
    keep_best: bool = False
    """Keep the checkpoint with the best score on held-out tasks too, among those whose weights were evaluated."""


class CheckpointSettings(RetentionSettings):
    every_steps: PositiveInt = 4
    """Steps between two checkpoints; a crash repeats at most these and the steps taken while the last one is
    written."""

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        if self.keep_every_steps % self.every_steps:
            nearest = max(1, round(self.keep_every_steps / self.every_steps)) * self.every_steps
            raise ValueError(
                f"checkpoint.keep_every_steps = {self.keep_every_steps} is not a multiple of checkpoint.every_steps = "
                f"{self.every_steps}, and only those steps have a checkpoint: set keep_every_steps = {nearest}"
            )
        return self
