"""The policy and how it learns: model, warm start, learner, staleness, checkpoints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from learner.losses.objective import AdvantageEstimator, LossAggregation, LossType
from learner.settings import LORA_ALL_LINEAR, Dtype, LoraSettings, Offload, Recompute
from protocol.settings import ConfigSection, CountInt, DecayRate, PositiveInt, Share
from protocol.staleness import StaleTokenPolicy


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
    too_long: OverlongAction = OverlongAction.ERROR
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


class TrainerSection(ConfigSection):
    """The learner, whatever it learns from."""

    ranks: PositiveInt = 1
    """Learner processes; data-parallel replicas = ranks ÷ (tp × pp × cp)."""
    tp: PositiveInt = 1
    """Tensor-parallel size."""
    pp: PositiveInt = 1
    """Pipeline-parallel size."""
    cp: PositiveInt = 1
    """Context-parallel size: so many ranks share each sequence, for trajectories that one cannot hold."""
    sequence_parallel: bool = False
    """Share norms and residuals over the tp ranks too: less memory, the same traffic."""
    distributed_optimizer: bool = False
    """Each data-parallel rank keeps its share of Adam's state."""
    call_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """A step, publication or checkpoint that takes longer hangs: the ranks leave their stacks in the attempt's logs,
    are killed and go on from the checkpoint."""
    device: Annotated[str, Field(pattern="^(cpu|cuda)$")] = "cpu"
    """``cpu`` (gloo) or ``cuda`` (NCCL)."""
    dtype: Dtype = Dtype.FLOAT32
    """Arithmetic of forward and backward; the optimizer's state is float32.  ``float64`` is for comparing layouts on a
    CPU."""
    lr: Annotated[float, Field(ge=0)] = 5e-4
    """AdamW's learning rate after the warm-up."""
    lr_warmup_steps: CountInt = 0
    """Steps over which the learning rate comes up: Adam's first steps are large whatever the gradient."""
    lr_end: Annotated[float, Field(ge=0)] | None = None
    """Learning rate at the run's last step, reached in a straight line; without it ``lr`` is constant."""
    betas: tuple[DecayRate, DecayRate] = (0.9, 0.95)
    """Adam's β₁ and β₂."""
    adam_eps: Annotated[float, Field(gt=0)] = 1e-8
    """Adam's ε."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay."""
    clip_grad: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm."""
    micro_batch_tokens: PositiveInt = 8192
    """Most tokens of one rank in a packed forward pass; memory, not the result, depends on it.  The cp ranks together
    hold a sequence of cp times as many."""
    recompute: Recompute = Recompute.NONE
    """What the backward pass computes again instead of keeping it: ``none``, ``selective`` (attention and MLP from
    their inputs; with cp it also spares each rank the others' keys) or ``full`` (whole layers)."""
    offload: Offload = Offload.NONE
    """What waits in host memory: ``optimizer`` (Adam's moments and main weights, between two updates) or ``parameters``
    (those, and weights and gradients between two steps: the device is somebody else's meanwhile)."""
    shard_mb: PositiveInt = 4096
    """Most MB of tensors in one file of a published version.  Until it is written the first rank's host holds a copy of
    the weights, so that training goes on."""
    threads: PositiveInt = 1
    """CPU threads of each rank."""

    @property
    def sequence_tokens(self) -> int:
        """Longest sequence that a pass holds."""
        return self.micro_batch_tokens * self.cp

    @model_validator(mode="after")
    def _fits(self) -> Self:
        shards = self.tp * self.pp * self.cp
        if self.ranks % shards:
            raise ValueError(
                f"learner.ranks = {self.ranks} is no multiple of tp × pp × cp = {shards}: "
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


class LearnerSection(TrainerSection):
    """The learner of a run, which learns from rewards."""

    eps_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """A token's ratio is clipped below 1 − eps_low where its advantage is negative."""
    eps_high: Annotated[float, Field(gt=0)] = 0.28
    """A token's ratio is clipped above 1 + eps_high where its advantage is positive (clip-higher, DAPO)."""
    dual_clip: Annotated[float, Field(gt=1)] = 3.0
    """Largest ratio that counts where the advantage is negative."""
    loss: LossType = LossType.CLIP
    """``clip`` (DAPO), ``gspo``, ``cispo``, ``dppo_tv``, or ``reinforce`` with truncated importance sampling."""
    tis_cap: Annotated[float, Field(gt=0)] | None = None
    """Bound of the weight in the loss ``reinforce``, min(ratio, tis_cap) · A · log π; it has no other bounds."""
    tv_bound: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Farthest that a token's probability may have moved in the advantage's direction, in the loss ``dppo_tv``."""
    aggregation: LossAggregation = LossAggregation.TOKEN_MEAN
    """Share of a token in the loss: ``token_mean``, ``sequence_mean``, or ``constant`` (Dr. GRPO)."""
    aggregation_tokens: CountInt = 0
    """The constant by which ``constant`` divides: the most tokens that a trajectory samples, say."""
    minibatches: PositiveInt = 1
    """Optimizer updates on each batch, which is shared out among them; together they are one step."""
    nonfinite_limit: PositiveInt = 3
    """Batches in a row without a finite update that end the run."""
    advantage: AdvantageEstimator = AdvantageEstimator.GROUP
    """How rewards become advantages: ``group``, ``leave_one_out``, ``no_std``, ``batch``, or ``step``."""
    publish_every: PositiveInt = 1
    """In mode async, optimizer steps from one set of weights that the engines get to the next: 2 trains what one policy
    sampled in two steps, the second of them one step further off it.  The other modes publish after each step."""


class LoraSection(ConfigSection):
    """Low-rank adapters, which are trained in place of the model's weights."""

    rank: CountInt = 0
    """Of each adapter; 0 trains all weights instead.  Adapters want a ``learner.lr`` some ten times as high."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """alpha ÷ rank multiplies what an adapter adds."""
    targets: tuple[str, ...] = (LORA_ALL_LINEAR,)
    """Projections of each layer that have one: ``all-linear``, or some of ``q_proj``, ``k_proj``, ``v_proj``,
    ``o_proj``, ``gate_proj``, ``up_proj`` and ``down_proj``."""

    @field_validator("targets", mode="before")
    @classmethod
    def _one(cls, targets: object) -> object:
        return (targets,) if isinstance(targets, str) else targets

    @property
    def lora(self) -> LoraSettings | None:
        """What the learner is told.  Raises UserError."""
        return LoraSettings(self.rank, self.alpha, self.targets) if self.rank else None


class StalenessSection(ConfigSection):
    eta: CountInt = 2
    """Oldest token that is trained: optimizer steps between the weights that sampled it and those that use it."""
    policy: StaleTokenPolicy = StaleTokenPolicy.MASK
    """What becomes of older tokens."""


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
