"""The spec of a learner's ranks.  Importing this module loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from learner.losses.objective import Objective
from learner.settings import LoraSettings, TrainerSettings
from protocol.errors import UserError
from protocol.staleness_settings import StalenessSettings

DEFAULT_LOGPROB_CHUNK_BYTES = 256 << 20


def warmup_factor(step: int, steps: int) -> float:
    """Return the factor of the learning rate at ``step``, counted from 1, in a linear warm-up of ``steps`` steps."""
    return min(1.0, step / (steps + 1))


@dataclass(frozen=True, slots=True)
class LearnerSpec:
    """Configuration sections of a learner, and values that exist only at run time; the same on each rank.  Raises
    UserError if two values contradict each other."""

    model_path: str
    """Hugging Face folder of a dense Qwen2.5 or Qwen3: config.json, safetensors, tokenizer files."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)
    objective: Objective = field(default_factory=Objective)
    staleness: StalenessSettings = field(default_factory=StalenessSettings)
    temperature: float = 1.0
    """Temperature of the rollouts: log-probabilities are log softmax(logits ÷ temperature)."""
    seed: int = 0
    total_steps: int = 1
    """Optimizer steps of the run: ``trainer.lr_end`` is reached at the last one."""
    zero_learning_rate: bool = False
    """Use the learning rate 0, unless ``lr_changes`` sets another: a negative control."""
    shuffle_rewards: bool = False
    """Shuffle the rewards of a batch before advantages are computed: a negative control."""
    lr_changes: tuple[tuple[int, float], ...] = ()
    """(step, rate) pairs set by a person: from that step on the rate is constant.  The last pair that applies wins."""
    publish_adapters: bool = False
    """Publish only the adapters instead of merging them into the weights."""
    logprob_chunk_bytes: int = DEFAULT_LOGPROB_CHUNK_BYTES
    """Most bytes of float32 logits in memory at once."""

    def lr_at(self, step: int) -> float:
        """Return the learning rate of optimizer step ``step``, counted from 1."""
        trainer = self.trainer
        warm = warmup_factor(step, trainer.lr_warmup_steps)
        if (changed := next((lr for first, lr in reversed(self.lr_changes) if first <= step), None)) is not None:
            return warm * changed
        if self.zero_learning_rate:
            return 0.0
        if trainer.lr_end is None or self.total_steps < 2:
            return warm * trainer.lr
        done = min(1.0, (step - 1) / (self.total_steps - 1))
        return warm * (trainer.lr + (trainer.lr_end - trainer.lr) * done)

    def __post_init__(self) -> None:
        if self.publish_adapters and not self.lora.enabled:
            raise UserError("there are no adapters to publish: set lora.rank = 16, say, or publish_adapters = false")
        if self.temperature <= 0:
            raise UserError(f"temperature={self.temperature}: training needs sampled tokens, so it is above 0")
