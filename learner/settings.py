"""What a learner is told: one frozen object, chosen by ``launch``, the same on each rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from learner.losses.objective import Objective
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.staleness import StaleTokenPolicy


class Dtype(StrEnum):
    FLOAT64 = "float64"
    """On a CPU only: to see whether two layouts compute the same."""
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Weights and activations; main weights, gradients and Adam's moments stay float32."""


class Recompute(StrEnum):
    """What the backward pass computes again instead of keeping it."""

    NONE = "none"
    SELECTIVE = "selective"
    """Attention and MLP of each layer, from their inputs."""
    FULL = "full"
    """Each layer, from its input."""


class Offload(StrEnum):
    """What waits in host memory while it is not used.  On a CPU it is copied all the same, and nothing is saved."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    """Adam's moments and, in bfloat16, the main weights, between two updates."""
    PARAMETERS = "parameters"
    """Those, and between two calls weights and gradients too: the device is empty but while the rank computes."""


def warmup_factor(step: int, steps: int) -> float:
    """Share of its learning rate that ``step``, counted from 1, has after a warm-up of so many."""
    return min(1.0, step / (steps + 1))


LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Projections of a layer by their names in Hugging Face's models."""
LORA_ALL_LINEAR = "all-linear"
"""All of them."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Low-rank adapters (arXiv 2106.09685), which are trained in place of the weights.  Raises UserError."""

    rank: int
    alpha: float = 32.0
    """alpha ÷ rank multiplies what an adapter adds."""
    targets: tuple[str, ...] = (LORA_ALL_LINEAR,)
    """Projections that have one; in the order of ``TARGETS`` once it is made."""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise UserError(f"lora.rank = {self.rank}: an adapter has a rank of 1 or more, and 0 trains without any")
        if self.alpha <= 0:
            raise UserError(f"lora.alpha = {self.alpha:g} would leave adapters without effect: set it above 0, 32 say")
        if not self.targets:
            raise UserError(
                f"lora.targets is empty, so there is nothing to train: set lora.targets = '{LORA_ALL_LINEAR}'"
            )
        known = (*LORA_TARGETS, LORA_ALL_LINEAR)
        for target in self.targets:
            if target not in known:
                raise UserError(
                    f"lora.targets has '{target}', which no layer has{did_you_mean(target, known)} "
                    f"(there are {', '.join(LORA_TARGETS)}, and '{LORA_ALL_LINEAR}' for all)"
                )
        object.__setattr__(self, "alpha", float(self.alpha))
        asked = LORA_TARGETS if LORA_ALL_LINEAR in self.targets else self.targets
        object.__setattr__(self, "targets", tuple(target for target in LORA_TARGETS if target in asked))


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """Raises UserError where two values cannot go together."""

    model_path: str
    """Hugging Face folder of a dense Qwen2.5 or Qwen3: config.json, safetensors, tokenizer files."""
    device: str = ""
    """``cpu`` (gloo) or ``cuda`` (NCCL), which has to be there; empty: CUDA where torch sees it."""
    dtype: Dtype = Dtype.FLOAT32
    tp: int = 1
    """Ranks that share each layer."""
    pp: int = 1
    """Pipeline stages."""
    cp: int = 1
    """Ranks that share each sequence."""
    sequence_parallel: bool = False
    """Share norms and residuals over the tp ranks too."""
    distributed_optimizer: bool = False
    """Each data-parallel rank keeps its share of the Adam state."""
    lr: float = 5e-4
    lr_end: float | None = None
    """Learning rate from ``lr_decay_steps`` on, reached in a straight line; None keeps ``lr``."""
    lr_decay_steps: int = 0
    lr_changes: tuple[tuple[int, float], ...] = ()
    """(step, rate): from that step on it is what a person asked for instead, constant; the last that holds counts."""
    lr_warmup_steps: int = 0
    """Steps over which the learning rate comes up to that line: Adam's first steps are large whatever the gradient."""
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Decoupled; never on norms."""
    clip_grad: float = 1.0
    """Largest gradient norm."""
    objective: Objective = field(default_factory=Objective)
    """What is maximised."""
    shuffle_rewards: bool = False
    """Deal the rewards of a batch out anew before advantages: a control that must not learn."""
    temperature: float = 1.0
    """Of the rollouts: log-probabilities are log softmax(logits ÷ temperature)."""
    max_staleness: int = 4
    """Age bound in optimizer steps."""
    stale_policy: StaleTokenPolicy = StaleTokenPolicy.MASK
    micro_batch_tokens: int = 8192
    """Most tokens of one rank in a forward and backward pass; cp ranks hold a sequence of cp times as many."""
    packed: bool = True
    """Without it each sequence has a pass of its own: slower, the same result."""
    recompute: Recompute = Recompute.NONE
    offload: Offload = Offload.NONE
    logprob_chunk_bytes: int = 256 << 20
    """float32 logits held at once."""
    shard_bytes: int = 4 << 30
    """Most bytes of tensors in one file of a published version: so much host memory does publishing need."""
    lora: LoraSettings | None = None
    """With it, adapters are trained and all else is frozen."""
    publish_adapters: bool = False
    """What is published beside training are the adapters alone, not merged into the weights."""
    seed: int = 0
    threads: int = 0
    """CPU threads of this rank; 0 leaves torch's choice."""
    timeout_s: float = 600.0
    """Of each collective: the longest that a rank waits for another."""

    @property
    def model_parallel_size(self) -> int:
        """Ranks that hold one replica of the weights, or share its sequences."""
        return self.tp * self.pp * self.cp

    def lr_at(self, step: int) -> float:
        """Learning rate of optimizer step ``step``, counted from 1."""
        warm = warmup_factor(step, self.lr_warmup_steps)
        if (asked := next((lr for first, lr in reversed(self.lr_changes) if first <= step), None)) is not None:
            return warm * asked
        if self.lr_end is None or self.lr_decay_steps < 1:
            return warm * self.lr
        done = min(1.0, (step - 1) / self.lr_decay_steps)
        return warm * (self.lr + (self.lr_end - self.lr) * done)

    def __post_init__(self) -> None:
        # A plain string equals its enum member but is not it, and code below asks for identity.
        object.__setattr__(self, "dtype", Dtype(self.dtype))
        object.__setattr__(self, "stale_policy", StaleTokenPolicy(self.stale_policy))
        object.__setattr__(self, "recompute", Recompute(self.recompute))
        object.__setattr__(self, "offload", Offload(self.offload))
        if self.sequence_parallel and self.tp == 1:
            raise UserError("sequence_parallel shares work over tp ranks: set tp > 1, or sequence_parallel = false")
        if self.dtype is Dtype.FLOAT64 and self.device == "cuda":
            raise UserError("float64 is for comparing layouts on a CPU: set dtype = bfloat16, or device = cpu")
        if self.publish_adapters and self.lora is None:
            raise UserError("there are no adapters to publish: set lora.rank = 16, say, or publish_adapters = false")
        if self.temperature <= 0:
            raise UserError(f"temperature={self.temperature}: training needs sampled tokens, so it is above 0")
