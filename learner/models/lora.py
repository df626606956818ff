"""Attaching and exporting adapters.

Matrices are initialised like PEFT's: A from the uniform distribution of ``torch.nn.Linear``, drawn separately for each
projection, so that every layout starts equal; B with zeros, so that the model starts unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from learner.models.adapters import ADAPTER_SUFFIX, AdaptedLayer, LoraAdapter
from learner.models.hf_folder import NamedWeight, TensorShape
from learner.models.qwen import QwenConfig
from learner.models.weight_conversion import WeightMapping, assign_to_layers, gather_weights, layer_weight_mappings
from learner.parallel.layout import ParallelLayout
from learner.settings import LoraSettings, Recompute
from learner.spec import LearnerSpec

_PEFT, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
"""Prefix and suffixes of PEFT's names."""


@torch.no_grad()
def attach_adapters(model: torch.nn.Module, config: QwenConfig, spec: LearnerSpec, layout: ParallelLayout) -> None:
    """Freeze all weights of this rank and attach adapters."""
    lora, sequence_parallel = spec.lora, spec.trainer.sequence_parallel
    dtype = next(model.parameters()).dtype
    model.requires_grad_(False)
    for weight, stage, ours, theirs in assign_to_layers(_adapted(config, lora), config, layout):
        if stage != layout.pp_rank:
            continue
        layer = ours + weight.megatron_name.removesuffix(".weight")
        adapter = LoraAdapter(
            _adapted_layer(weight, layout, dtype, sequence_parallel=sequence_parallel),
            _targets(weight, lora),
            lora.rank,
            lora.scale,
        )
        owner, _, name = layer.rpartition(".")
        model.get_submodule(owner).add_module(name + ADAPTER_SUFFIX, adapter)
        model.get_submodule(layer).register_forward_hook(adapter.add_to_output)
        for matrix in _matrices(weight, lora):
            ((named, shape),) = matrix.hf_shapes.items()
            if named.endswith(_A):
                target = model.get_parameter(ours + matrix.megatron_name)
                drawn = _initial_a(theirs + named, shape, spec.seed)
                target.copy_(matrix.make_shard([drawn], layout.tp, layout.tp_rank).reshape(target.shape))
    if layout.is_first_stage and spec.trainer.recompute is not Recompute.NONE:
        # Recomputed layers have gradients only if their input requires one; the frozen embedding's output does not.
        model.get_submodule("embedding").register_forward_hook(_with_gradient)


def _with_gradient(_module: object, _inputs: object, output: Tensor) -> Tensor:
    return output.requires_grad_()


def _initial_a(name: str, shape: TensorShape, seed: int) -> Tensor:
    """Return float32, uniform within ±1 ÷ √columns: ``kaiming_uniform_`` with a = √5."""
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]))
    bound = shape[1] ** -0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def export_adapters(
    model: torch.nn.Module, config: QwenConfig, lora: LoraSettings, layout: ParallelLayout
) -> Iterator[NamedWeight]:
    """Yield all matrices under PEFT's names, as :func:`learner.models.weight_conversion.export_weights` the weights."""
    matrices = [matrix for weight in _adapted(config, lora) for matrix in _matrices(weight, lora)]
    for name, tensor in gather_weights(model, assign_to_layers(matrices, config, layout), layout):
        yield NamedWeight(_PEFT + name, tensor)


def make_peft_config(lora: LoraSettings, base: str) -> dict[str, object]:
    """Return the content of PEFT's ``adapter_config.json``."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": int(lora.alpha) if lora.alpha.is_integer() else lora.alpha,
        "target_modules": list(lora.projections),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _adapted(config: QwenConfig, lora: LoraSettings) -> list[WeightMapping]:
    """Return the weights of one layer that have adapters."""
    return [
        each
        for each in layer_weight_mappings(config)
        if each.megatron_name.endswith(".weight") and _targets(each, lora)
    ]


def _targets(weight: WeightMapping, lora: LoraSettings) -> list[str]:
    return [target for target in map(_projection, weight.hf_shapes) if target in lora.projections]


def _projection(theirs: str) -> str:
    return theirs.split(".")[-2]


def _is_row_parallel(weight: WeightMapping) -> bool:
    return weight.shard_dim == 2


def _adapted_layer(
    weight: WeightMapping, layout: ParallelLayout, dtype: torch.dtype, *, sequence_parallel: bool
) -> AdaptedLayer:
    row_parallel = _is_row_parallel(weight)
    by_rows, by_columns = (1, layout.tp) if row_parallel else (layout.tp, 1)
    (columns,) = {shape[1] for shape in weight.hf_shapes.values()}
    return AdaptedLayer(
        rows={_projection(name): shape[0] // by_rows for name, shape in weight.hf_shapes.items()},
        columns=columns // by_columns,
        blocks=max(1, weight.blocks // by_rows),
        row_parallel=row_parallel,
        sequence_parallel=sequence_parallel,
        group=layout.tp_group,
        dtype=dtype,
    )


def _matrices(weight: WeightMapping, lora: LoraSettings) -> Iterator[WeightMapping]:
    """Yield A and B of each targeted projection in ``weight`` as weights."""
    ours, row_parallel = weight.megatron_name.removesuffix(".weight") + ADAPTER_SUFFIX, _is_row_parallel(weight)
    for name, (rows, columns) in weight.hf_shapes.items():
        target, theirs = _projection(name), name.removesuffix(".weight")
        if target in lora.projections:
            a, b = {theirs + _A: (lora.rank, columns)}, {theirs + _B: (rows, lora.rank)}
            yield WeightMapping(f"{ours}.{target}.a", a, shard_dim=2 if row_parallel else None)
            yield WeightMapping(f"{ours}.{target}.b", b, shard_dim=None if row_parallel else 1)
