"""The configuration of the learner: sections that ``launch.config`` composes into a run's configuration.

Importing this module loads no torch.  Values that exist only at run time are in :mod:`learner.spec`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from learner.losses.settings import PolicyLossSettings
from protocol.cli.suggestions import did_you_mean
from protocol.settings import ConfigSection, CountInt, DecayRate, PositiveInt
from protocol.staleness import DEFAULT_PUBLISH_EVERY

_COLLECTIVE_SHARE = 0.8
"""Share of a call's timeout that a rank waits for another in a collective: the rank that hangs is then the only one
that has not answered when the call times out."""


class Dtype(StrEnum):
    """The arithmetic of the forward and backward pass."""

    FLOAT64 = "float64"
    """On a CPU only, to check whether two layouts compute the same."""
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Weights and activations are bfloat16; main weights, gradients and Adam's moments stay float32."""


class Recompute(StrEnum):
    """Activations that the backward pass recomputes instead of keeping."""

    NONE = "none"
    SELECTIVE = "selective"
    """Recompute attention and MLP of each layer, from their inputs."""
    FULL = "full"
    """Recompute each layer, from its input."""


class Offload(StrEnum):
    """State that is offloaded to host memory while unused.  On a CPU the copies are made too, but save nothing."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    """Offload Adam's moments and, in bfloat16, the main weights, between two updates."""
    PARAMETERS = "parameters"
    """Offload also weights and gradients between two calls: the device is empty except while the rank computes."""


class TrainerSettings(ConfigSection):
    """Settings of every learner: ranks, layout, optimizer and memory."""

    ranks: PositiveInt = 1
    """Number of learner processes; data-parallel replicas = ranks ÷ (tp × pp × cp)."""
    tp: PositiveInt = 1
    """Tensor-parallel size."""
    pp: PositiveInt = 1
    """Pipeline-parallel size."""
    cp: PositiveInt = 1
    """Context-parallel size: this many ranks share each sequence, for trajectories that do not fit one rank."""
    sequence_parallel: bool = False
    """Shard norms and residuals over the tp ranks too: less memory, the same traffic."""
    distributed_optimizer: bool = False
    """Shard Adam's state over the data-parallel ranks."""
    call_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """Seconds after which a step, publication or checkpoint counts as hung: the ranks write their stacks into the
    run's logs and are killed.  A run then continues from its checkpoint; supervised training ends."""
    device: Annotated[str, Field(pattern="^(cpu|cuda)$")] = "cpu"
    """``cpu`` (gloo) or ``cuda`` (NCCL)."""
    dtype: Dtype = Dtype.FLOAT32
    """Arithmetic of forward and backward; the optimizer's state is float32.  ``float64`` is for comparing layouts on a
    CPU."""
    lr: Annotated[float, Field(ge=0)] = 5e-4
    """AdamW's learning rate after the warm-up."""
    lr_warmup_steps: CountInt = 0
    """Steps of linear warm-up: Adam's first steps are large whatever the gradient."""
    lr_end: Annotated[float, Field(ge=0)] | None = None
    """Learning rate at the last step.  A run reaches it in a straight line, and without it ``lr`` is constant;
    supervised training follows ``sft.schedule``, and without it ends at 0."""
    betas: tuple[DecayRate, DecayRate] = (0.9, 0.95)
    """Adam's β₁ and β₂."""
    adam_eps: Annotated[float, Field(gt=0)] = 1e-8
    """Adam's ε."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay; never applied to norms."""
    clip_grad: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm; larger gradients are scaled down to it."""
    micro_batch_tokens: PositiveInt = 8192
    """Most tokens of one rank in a packed forward pass.  It changes memory, not the result.  The cp ranks together hold
    a sequence of cp times as many."""
    recompute: Recompute = Recompute.NONE
    """Activations that the backward pass recomputes: ``none``, ``selective`` (attention and MLP from their inputs; with
    cp a rank then does not keep the other ranks' keys) or ``full`` (whole layers)."""
    offload: Offload = Offload.NONE
    """State offloaded to host memory: ``none``, ``optimizer`` (Adam's moments and main weights, between two updates) or
    ``parameters`` (also weights and gradients between two steps, so that another process can use the device)."""
    shard_mb: PositiveInt = 4096
    """Most MiB of tensors in one file of a published version.  Until it is written, the first rank's host memory holds
    a copy of the weights, so that training continues."""
    threads: PositiveInt = 1
    """CPU threads of each rank."""

    @property
    def model_parallel_size(self) -> int:
        """Number of ranks that hold one replica of the weights, or share its sequences."""
        return self.tp * self.pp * self.cp

    @property
    def sequence_tokens(self) -> int:
        """Length of the longest sequence that fits a forward pass."""
        return self.micro_batch_tokens * self.cp

    @property
    def shard_bytes(self) -> int:
        """``shard_mb`` in bytes."""
        return int(self.shard_mb * (1 << 20))

    @property
    def collective_timeout_s(self) -> float:
        """Longest wait for another rank in one collective."""
        return _COLLECTIVE_SHARE * self.call_timeout_s

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        shards = self.model_parallel_size
        if self.ranks % shards:
            raise ValueError(
                f"learner.ranks = {self.ranks} is not a multiple of tp × pp × cp = {shards}: "
                f"set learner.ranks = {-(-self.ranks // shards) * shards}"
            )
        if self.sequence_parallel and self.tp == 1:
            raise ValueError(
                "learner.sequence_parallel = true shares work over tp ranks, and learner.tp = 1: set learner.tp = 2 or "
                "learner.sequence_parallel = false"
            )
        if self.dtype is Dtype.FLOAT64 and self.device != "cpu":
            raise ValueError(
                "learner.dtype = 'float64' is for comparing layouts on a CPU: set learner.dtype = 'bfloat16' or "
                "learner.device = 'cpu'"
            )
        return self


class LearnerSettings(PolicyLossSettings, TrainerSettings):
    """The learner of a run, which learns from rewards."""

    nonfinite_limit: PositiveInt = 3
    """Consecutive batches without a finite update after which the run ends."""
    publish_every: PositiveInt = DEFAULT_PUBLISH_EVERY
    """Optimizer steps between published weights in mode async: with 2, rollouts of one policy are trained in two steps,
    the second of them one step staler.  The other modes publish after each step."""


LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Projections of a layer by their names in Hugging Face's models."""
LORA_ALL_LINEAR = "all-linear"
"""Name of all projections together."""


class LoraSettings(ConfigSection):
    """Low-rank adapters (LoRA, arXiv 2106.09685), which are trained in place of the model's weights."""

    rank: CountInt = 0
    """Rank of each adapter; 0 trains all weights instead.  Adapters need a ``learner.lr`` about ten times as high."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """Scale: alpha ÷ rank multiplies an adapter's output."""
    targets: tuple[str, ...] = (LORA_ALL_LINEAR,)
    """Projections of each layer that get an adapter: ``all-linear``, or some of ``q_proj``, ``k_proj``, ``v_proj``,
    ``o_proj``, ``gate_proj``, ``up_proj`` and ``down_proj``."""

    @property
    def enabled(self) -> bool:
        """True if adapters are trained."""
        return self.rank > 0

    @property
    def scale(self) -> float:
        """Factor of an adapter's output."""
        return self.alpha / self.rank

    @property
    def projections(self) -> tuple[str, ...]:
        """The targets by name, each once, in the order of ``LORA_TARGETS``."""
        named = LORA_TARGETS if LORA_ALL_LINEAR in self.targets else self.targets
        return tuple(target for target in LORA_TARGETS if target in named)

    @field_validator("targets", mode="before")
    @classmethod
    def _as_tuple(cls, targets: object) -> object:
        return (targets,) if isinstance(targets, str) else targets

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        if not self.targets:
            raise ValueError(
                f"lora.targets is empty, so there is nothing to train: set lora.targets = '{LORA_ALL_LINEAR}'"
            )
        known = (*LORA_TARGETS, LORA_ALL_LINEAR)
        for target in self.targets:
            if target not in known:
                raise ValueError(
                    f"lora.targets has '{target}', which no layer has{did_you_mean(target, known)} "
                    f"(there are {', '.join(LORA_TARGETS)}, and '{LORA_ALL_LINEAR}' for all)"
                )
        return self
