"""All names of megatron-core that this package uses.

megatron-core ships no types, so each is ``Any`` here and the rest of the package stays type-checked.  Importing this
module imports megatron.
"""

from __future__ import annotations

import importlib
from typing import Any

from learner.parallel import megatron_on_cpu


def _core(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"megatron.core.{module}"), name)


with megatron_on_cpu.importing_megatron():
    parallel_state: Any = importlib.import_module("megatron.core.parallel_state")
    dist_checkpointing: Any = importlib.import_module("megatron.core.dist_checkpointing")
    AttnBackend: Any = _core("transformer.enums", "AttnBackend")
    AttnMaskType: Any = _core("transformer.enums", "AttnMaskType")
    ColumnParallelLinear: Any = _core("tensor_parallel.layers", "ColumnParallelLinear")
    DistributedDataParallel: Any = _core("distributed", "DistributedDataParallel")
    DistributedDataParallelConfig: Any = _core("distributed", "DistributedDataParallelConfig")
    Float16Module: Any = _core("transformer.module", "Float16Module")
    GPTModel: Any = _core("models.gpt", "GPTModel")
    MLP: Any = _core("transformer.mlp", "MLP")
    MLPSubmodules: Any = _core("transformer.mlp", "MLPSubmodules")
    MegatronModule: Any = _core("transformer.module", "MegatronModule")
    ModuleSpec: Any = _core("transformer.spec_utils", "ModuleSpec")
    OptimizerConfig: Any = _core("optimizer", "OptimizerConfig")
    PackedSeqParams: Any = _core("packed_seq_params", "PackedSeqParams")
    RowParallelLinear: Any = _core("tensor_parallel.layers", "RowParallelLinear")
    SelfAttention: Any = _core("transformer.attention", "SelfAttention")
    SelfAttentionSubmodules: Any = _core("transformer.attention", "SelfAttentionSubmodules")
    ShardedObject: Any = _core("dist_checkpointing.mapping", "ShardedObject")
    TransformerBlockSubmodules: Any = _core("transformer.transformer_block", "TransformerBlockSubmodules")
    TransformerConfig: Any = _core("transformer.transformer_config", "TransformerConfig")
    TransformerLayer: Any = _core("transformer.transformer_layer", "TransformerLayer")
    TransformerLayerSubmodules: Any = _core("transformer.transformer_layer", "TransformerLayerSubmodules")
    copy_to_tensor_parallel: Any = _core("tensor_parallel.mappings", "copy_to_tensor_model_parallel_region")
    finalize_model_grads: Any = _core("distributed", "finalize_model_grads")
    gather_sequence: Any = _core("tensor_parallel.mappings", "gather_from_sequence_parallel_region")
    get_bias_dropout_add: Any = _core("fusions.fused_bias_dropout", "get_bias_dropout_add")
    get_forward_backward_func: Any = _core("pipeline_parallel.schedules", "get_forward_backward_func")
    get_megatron_optimizer: Any = _core("optimizer", "get_megatron_optimizer")
    get_num_layers_to_build: Any = _core("transformer.transformer_block", "get_num_layers_to_build")
    get_rng_tracker: Any = _core("tensor_parallel.random", "get_cuda_rng_tracker")
    make_sharded_tensors: Any = _core("transformer.utils", "make_sharded_tensors_for_checkpoint")
    reduce_from_tensor_parallel: Any = _core("tensor_parallel.mappings", "reduce_from_tensor_model_parallel_region")
    reduce_scatter_sequence: Any = _core("tensor_parallel.mappings", "reduce_scatter_to_sequence_parallel_region")
    seed_model_parallel: Any = _core("tensor_parallel", "model_parallel_cuda_manual_seed")


def transformer_engine() -> Any:
    """Return megatron's provider of Transformer Engine's layers, which has to be installed."""
    with megatron_on_cpu.without_megatron_warnings():
        return _core("extensions.transformer_engine_spec_provider", "TESpecProvider")()
