"""The configuration of supervised training, which ``launch.sft`` runs."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from launch.settings.sft import (
    LearningRateSchedule,
    SftCheckpointSettings,
    SftLearnerSettings,
    SftRunSettings,
    SftSettings,
)
from learner.settings import LoraSettings
from protocol.settings import ConfigSection


class SftConfig(ConfigSection):
    run: SftRunSettings = SftRunSettings()
    sft: SftSettings = SftSettings()
    learner: SftLearnerSettings = SftLearnerSettings()
    lora: LoraSettings = LoraSettings()
    checkpoint: SftCheckpointSettings = SftCheckpointSettings()

    @property
    def max_sequence_tokens(self) -> int:
        """Maximum length of a sequence, as far as the learner is concerned."""
        room = self.learner.sequence_tokens
        return min(self.sft.max_tokens, room) if self.sft.max_tokens else room

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems, learner = list[str](), self.learner
        wanted, room = self.sft.max_tokens, learner.sequence_tokens
        if wanted > room:
            problems.append(
                f"sft.max_tokens = {wanted} is more than learner.micro_batch_tokens × learner.cp = {room}: "
                f"set learner.micro_batch_tokens = {-(-wanted // learner.cp)}, or raise learner.cp"
            )
        if self.sft.schedule is LearningRateSchedule.CONSTANT and learner.lr_end is not None:
            problems.append(
                "sft.schedule = 'constant' never reaches learner.lr_end: set sft.schedule = 'linear', or remove "
                "learner.lr_end"
            )
        if self.sft.eval_every_steps and not self.sft.eval_data:
            problems.append("sft.eval_every_steps needs sft.eval_data: give --eval-data, or remove it")
        if self.sft.adapters is not None and not self.lora.enabled:
            problems.append("sft.adapters has no adapters to write: set lora.rank = 16, for example, or remove it")
        if problems:
            raise ValueError("; also: ".join(problems))
        return self
