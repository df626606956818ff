"""Qwen2.5 and Qwen3 (dense) as a megatron-core GPTModel."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from learner.models.attention import PackedBatch
from learner.models.kernels import take_rows
from learner.models.layers import make_block_spec
from learner.models.logprobs import token_logprobs
from learner.models.qwen import QwenConfig, padded_vocabulary
from learner.parallel import megatron_on_cpu
from learner.parallel.layout import ParallelLayout
from learner.parallel.megatron import (
    AttnBackend,
    DistributedDataParallel,
    DistributedDataParallelConfig,
    Float16Module,
    GPTModel,
    TransformerConfig,
    copy_to_tensor_parallel,
    gather_sequence,
    get_num_layers_to_build,
)
from learner.settings import Dtype, Recompute, TrainerSettings
from learner.spec import LearnerSpec
from protocol.errors import UserError


class PolicyModel(GPTModel):
    """A GPTModel whose last stage returns [2, N], float32 (float64 for float64 weights): log-probability and entropy of
    all tokens with loss, on each context-parallel rank.

    Only rows that predict such a token are multiplied with the vocabulary."""

    logprob_chunk_bytes: int
    temperature: float
    vocabulary: int
    """Size without the rows that pad it to a multiple of tp."""

    def _postprocess(
        self, hidden_states: Tensor, *_: object, packed_seq_params: PackedBatch | None = None, **__: object
    ) -> Tensor:
        """Return [2, N] for ``hidden_states`` [T ÷ (tp if sequence-parallel), 1, H]."""
        if not self.post_process:
            return hidden_states
        if packed_seq_params is None:
            raise TypeError("PolicyModel takes a PackedBatch")
        group = self.pg_collection.tp
        if self.config.sequence_parallel:
            hidden = gather_sequence(hidden_states, tensor_parallel_output_grad=True, group=group)
            chosen = take_rows(hidden.squeeze(1), packed_seq_params.rows)
        else:
            chosen = take_rows(hidden_states.squeeze(1), packed_seq_params.rows)
            chosen = copy_to_tensor_parallel(chosen, group=group)
        tied = self.share_embeddings_and_output_weights
        weight: Tensor = self.shared_embedding_or_output_weight() if tied else self.output_layer.weight
        first = group.rank() * weight.shape[0]
        real = min(weight.shape[0], self.vocabulary - first)
        buffer: Tensor | None = getattr(weight, "main_grad", None)  # only trained weights have one
        found = token_logprobs(
            chosen,
            weight if real == weight.shape[0] else weight[:real],
            packed_seq_params.labels,
            first=first,
            group=group if group.size() > 1 else None,
            chunk_bytes=self.logprob_chunk_bytes,
            temperature=self.temperature,
            entropy=packed_seq_params.entropy,
            weight_grad_VH=None if buffer is None else buffer[:real],
        )
        both = torch.stack((found.logprobs, found.entropy), 1)
        shared = packed_seq_params.context_shard
        return (both if shared is None else shared.gather_targets(both)).t()


def torch_dtype(dtype: Dtype) -> torch.dtype:
    return {Dtype.FLOAT64: torch.float64, Dtype.FLOAT32: torch.float32, Dtype.BFLOAT16: torch.bfloat16}[dtype]


def rotary_frequencies(config: QwenConfig, dtype: Dtype) -> Tensor:
    """Return the frequencies of the rotary embedding: float32, or float64 for float64 weights, [head_dim ÷ 2] on the
    device."""
    wide = torch.float64 if dtype is Dtype.FLOAT64 else torch.float32
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(wide) / config.head_dim
    return (1.0 / config.rope_theta**exponents).to(megatron_on_cpu.rank_device())


_RECOMPUTE: dict[Recompute, dict[str, Any]] = {
    Recompute.NONE: {},
    Recompute.SELECTIVE: {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "mlp"]},
    Recompute.FULL: {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}


def make_transformer_config(config: QwenConfig, settings: TrainerSettings) -> Any:
    """Return megatron's configuration.  Raises UserError if heads or layers cannot be divided among the ranks."""
    if config.num_key_value_heads % settings.tp or config.intermediate_size % settings.tp:
        raise UserError(
            f"tp={settings.tp} must divide the model's {config.num_key_value_heads} key-value heads and "
            f"its intermediate size {config.intermediate_size}"
        )
    if config.num_hidden_layers % settings.pp:
        raise UserError(f"pp={settings.pp} must divide the model's {config.num_hidden_layers} layers")
    dtype = torch_dtype(settings.dtype)
    return TransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=config.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=config.rms_norm_eps,
        qk_layernorm=config.family.qk_norm,
        gated_linear_unit=True,
        activation_func=F.silu,
        use_te_activation_func=True,  # the name is historical: it takes the MLP's activation from the spec, SwiGlu here
        add_bias_linear=False,
        add_qkv_bias=config.family.qkv_bias,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        attention_softmax_in_fp32=True,
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        pipeline_dtype=dtype,
        tensor_model_parallel_size=settings.tp,
        pipeline_model_parallel_size=settings.pp,
        context_parallel_size=settings.cp,
        sequence_parallel=settings.sequence_parallel,
        use_cpu_initialization=megatron_on_cpu.CPU_ONLY,
        perform_initialization=True,  # also marks which weights are shared over tp: gradient norms need it
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,  # all need CUDA extensions
        attention_backend=AttnBackend.local,
        variable_seq_lengths=settings.pp > 1,
        batch_p2p_comm=True,
        moe_token_dispatcher_type="alltoall",  # noqa: S106 - no password; the default refuses variable_seq_lengths
        deterministic_mode=not megatron_on_cpu.CPU_ONLY,  # the embedding's fast gradient is deterministic on a CPU only
        **_RECOMPUTE[settings.recompute],
        calculate_per_token_loss=True,  # the caller's weights are global, so gradients are plain sums
    )


def build_policy_model(config: QwenConfig, spec: LearnerSpec, layout: ParallelLayout) -> PolicyModel:
    """Build this rank's part of the model with uninitialised weights."""
    with megatron_on_cpu.without_megatron_warnings():
        shape = make_transformer_config(config, spec.trainer)
    # Under pipeline parallelism the spec has this stage's layers.
    block = make_block_spec(config, get_num_layers_to_build(shape))
    with megatron_on_cpu.cuda_is_cpu():
        model = PolicyModel(
            config=shape,
            transformer_layer_spec=block,
            vocab_size=padded_vocabulary(config, spec.trainer.tp),
            max_sequence_length=config.max_position_embeddings,
            pre_process=layout.is_first_stage,
            post_process=layout.is_last_stage,
            parallel_output=True,
            share_embeddings_and_output_weights=config.tie_word_embeddings,
            position_embedding_type="none",
        )
    model.logprob_chunk_bytes, model.temperature = spec.logprob_chunk_bytes, spec.temperature
    model.vocabulary = config.vocab_size
    return model.to(megatron_on_cpu.rank_device())


def wrap_data_parallel(model: PolicyModel, settings: TrainerSettings) -> Any:
    """Wrap the model with float32 gradient buffers, which megatron's schedule sums over data-parallel ranks."""
    inner: Any = Float16Module(model.config, model) if model.config.bf16 else model
    with megatron_on_cpu.cuda_is_cpu():
        return DistributedDataParallel(
            model.config,
            DistributedDataParallelConfig(
                grad_reduce_in_fp32=model.config.params_dtype != torch.float64,
                overlap_grad_reduce=False,
                use_distributed_optimizer=settings.distributed_optimizer,
            ),
            inner,
        )
