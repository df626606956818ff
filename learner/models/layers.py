"""Parts of a transformer layer: Transformer Engine's layers if installed, else megatron's with our norm and activation.
Attention is ours in both cases, for packed sequences with their own positions."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from learner.models.attention import PackedAttention
from learner.models.kernels import rms_norm
from learner.models.qwen import QwenConfig
from learner.parallel import megatron_on_cpu
from learner.parallel.megatron import (
    MLP,
    AttnMaskType,
    ColumnParallelLinear,
    MegatronModule,
    MLPSubmodules,
    ModuleSpec,
    RowParallelLinear,
    SelfAttention,
    SelfAttentionSubmodules,
    TransformerBlockSubmodules,
    TransformerLayer,
    TransformerLayerSubmodules,
    get_bias_dropout_add,
    transformer_engine,
)


class RmsNorm(torch.nn.Module):
    """RMS norm with sequence parallelism, which megatron's local norm refuses; the flag on the weight makes megatron
    sum its gradient over the tensor-parallel ranks."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_: object) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(
            torch.ones(hidden_size, dtype=config.params_dtype, device=megatron_on_cpu.rank_device())
        )
        vars(self.weight)["sequence_parallel"] = config.sequence_parallel

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class SwiGlu(MegatronModule):
    """silu(first half) · second half; megatron's own adds a zero offset in another pass over memory."""

    def __init__(self, config: Any) -> None:
        super().__init__(config=config)  # pyright: ignore[reportUnknownMemberType]  untyped in megatron

    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


class LayerClasses(NamedTuple):
    """Classes that depend on Transformer Engine.  Its fused norm-and-linear is not used, so that parameters keep their
    names and checkpoints load with and without it."""

    column: Any
    row: Any
    norm: Any


def choose_layer_classes() -> LayerClasses:
    """Return Transformer Engine's classes if CUDA and it are available, else our own."""
    if megatron_on_cpu.CPU_ONLY or importlib.util.find_spec("transformer_engine") is None:
        return LayerClasses(ColumnParallelLinear, RowParallelLinear, RmsNorm)
    engine = transformer_engine()
    return LayerClasses(engine.column_parallel_linear(), engine.row_parallel_linear(), engine.layer_norm())


def make_block_spec(config: QwenConfig, layers: int) -> Any:
    """Return the spec of a whole block of ``layers``, so that the final norm is of the same kind."""
    column, row, norm = choose_layer_classes()
    head_norm = RmsNorm if config.family.qk_norm else None
    attention = SelfAttentionSubmodules(
        linear_qkv=column,
        core_attention=PackedAttention,
        linear_proj=row,
        q_layernorm=head_norm,
        k_layernorm=head_norm,
    )
    mlp = MLPSubmodules(linear_fc1=column, linear_fc2=row, activation_func=SwiGlu)
    layer = ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=norm,
            self_attention=ModuleSpec(
                module=SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=attention
            ),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=norm,
            mlp=ModuleSpec(module=MLP, submodules=mlp),
            mlp_bda=get_bias_dropout_add,
        ),
    )
    return TransformerBlockSubmodules(layer_specs=[layer] * layers, layer_norm=norm)
