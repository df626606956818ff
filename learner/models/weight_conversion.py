"""Weights between Hugging Face's layout and megatron's, one tensor at a time, bit for bit.

Megatron interleaves q, k and v by key-value head in one matrix, stacks gate and up projection of each tensor-parallel
rank, and shards matrices over ranks by rows or columns.  The conversion is data, one :class:`WeightMapping` per
parameter.
(Experts would be further entries of :func:`layer_weight_mappings`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from learner.models.adapters import adapters_by_weight
from learner.models.hf_folder import NamedWeight, TensorShape, open_tensor_folder
from learner.models.qwen import QwenConfig, padded_vocabulary
from learner.parallel.layout import ParallelLayout
from learner.tensors import all_gather

_IGNORED = ("lm_head.weight", "rotary_emb.inv_freq")
"""Suffixes of redundant tensors in some folders: a tied output layer, and a table that is computed here."""


@dataclass(frozen=True, slots=True)
class WeightMapping:
    """One parameter of megatron and the Hugging Face tensors that it consists of.

    Each tensor is viewed as [blocks, rows ÷ blocks, ...]; the views are joined along ``join_dim`` and sharded over the
    tensor-parallel ranks along ``shard_dim``."""

    megatron_name: str
    hf_shapes: dict[str, TensorShape]
    blocks: int = 1
    join_dim: int = 1
    shard_dim: int | None = 1
    """Dimension of the sharding; None if each rank has the whole parameter."""
    padded_rows: int | None = None
    """Number of rows to which zero rows are added, if set."""

    def make_shard(self, tensors: Sequence[Tensor], tp: int, rank: int) -> Tensor:
        """Return the shard [blocks, ...] of one of ``tp`` ranks."""
        blocks = [tensor.reshape(self._part(tuple(tensor.shape))) for tensor in tensors]
        joined = torch.cat(blocks, self.join_dim) if len(blocks) > 1 else blocks[0]
        missing = (self.padded_rows or 0) - joined.shape[1]
        if missing > 0:
            joined = torch.cat([joined, joined.new_zeros(1, missing, *joined.shape[2:])], 1)
        return joined if self.shard_dim is None else joined.chunk(tp, self.shard_dim)[rank]

    def join_shards(self, shares: Sequence[Tensor]) -> list[Tensor]:
        """Return the Hugging Face tensors from the parameters of all ranks in order; the inverse of
        :meth:`make_shard`."""
        tp = len(shares)
        joined = torch.cat([share.reshape(self._shape(tp)) for share in shares], self.shard_dim or 0)
        ends = list(accumulate(self._part(shape)[self.join_dim] for shape in self.hf_shapes.values()))
        parts = joined.tensor_split(ends, self.join_dim)
        return [part.reshape(shape) for part, shape in zip(parts, self.hf_shapes.values(), strict=False)]

    def _part(self, shape: TensorShape) -> TensorShape:
        return (self.blocks, shape[0] // self.blocks, *shape[1:])

    def _shape(self, tp: int) -> TensorShape:
        """Return the shape of a rank's shard before it is flattened into the parameter."""
        parts = [list(self._part(shape)) for shape in self.hf_shapes.values()]
        joined = parts[0]
        joined[self.join_dim] = sum(part[self.join_dim] for part in parts)
        if self.padded_rows is not None:
            joined[1] = self.padded_rows
        if self.shard_dim is not None:
            joined[self.shard_dim] //= tp
        return tuple(joined)


def layer_weight_mappings(config: QwenConfig) -> list[WeightMapping]:
    """Return the mappings of one layer, by names within the layer, in the order of Hugging Face's modules."""
    hidden, inner, groups = config.hidden_size, config.intermediate_size, config.num_key_value_heads
    sizes = {"q": config.query_size, "k": config.key_size, "v": config.key_size}

    def norm(ours: str, theirs: str, size: int) -> WeightMapping:
        return WeightMapping(f"{ours}.weight", {f"{theirs}.weight": (size,)}, shard_dim=None)

    def qkv(what: str, *rest: int) -> WeightMapping:
        theirs = {f"self_attn.{part}_proj.{what}": (size, *rest) for part, size in sizes.items()}
        return WeightMapping(f"self_attention.linear_qkv.{what}", theirs, blocks=groups, shard_dim=0)

    def columns(ours: str, theirs: str, size: int) -> WeightMapping:
        return WeightMapping(f"{ours}.weight", {f"{theirs}.weight": (hidden, size)}, shard_dim=2)

    halves = {f"mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
    found = [qkv("weight", hidden), columns("self_attention.linear_proj", "self_attn.o_proj", config.query_size)]
    if config.family.qkv_bias:
        found.append(qkv("bias"))
    if config.family.qk_norm:
        found += [norm(f"self_attention.{x}_layernorm", f"self_attn.{x}_norm", config.head_dim) for x in "qk"]
    return [
        *found,
        WeightMapping("mlp.linear_fc1.weight", halves, join_dim=0),
        columns("mlp.linear_fc2", "mlp.down_proj", inner),
        norm("input_layernorm", "input_layernorm", hidden),
        norm("pre_mlp_layernorm", "post_attention_layernorm", hidden),
    ]


def embedding_mapping(config: QwenConfig, tp: int) -> WeightMapping:
    return _table("embedding.word_embeddings.weight", "model.embed_tokens.weight", config, tp)


def output_mapping(config: QwenConfig, tp: int) -> WeightMapping:
    name = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return _table("output_layer.weight", name, config, tp)


def _table(ours: str, theirs: str, config: QwenConfig, tp: int) -> WeightMapping:
    return WeightMapping(
        ours, {theirs: (config.vocab_size, config.hidden_size)}, padded_rows=padded_vocabulary(config, tp)
    )


def final_norm_mapping(config: QwenConfig) -> WeightMapping:
    return WeightMapping("decoder.final_layernorm.weight", {"model.norm.weight": (config.hidden_size,)}, shard_dim=None)


def hf_tensor_shapes(config: QwenConfig) -> dict[str, TensorShape]:
    """Return the shapes of all tensors by Hugging Face name, in the order of :func:`export_weights`."""
    found = dict(embedding_mapping(config, 1).hf_shapes)
    for layer in range(config.num_hidden_layers):
        for weight in layer_weight_mappings(config):
            found |= {f"model.layers.{layer}.{name}": shape for name, shape in weight.hf_shapes.items()}
    return found | final_norm_mapping(config).hf_shapes | output_mapping(config, 1).hf_shapes


def hf_tensor_bytes(config: QwenConfig, dtype: torch.dtype) -> dict[str, int]:
    """Return the bytes of each of :func:`hf_tensor_shapes` with that type."""
    return {name: prod(shape) * dtype.itemsize for name, shape in hf_tensor_shapes(config).items()}


def check_model_folder(folder: Path, config: QwenConfig) -> None:
    """Raise UserError if the folder's files are missing, damaged, or not of ``config``'s model; reads only headers."""
    with open_tensor_folder(folder) as opened:
        opened.check_tensors(hf_tensor_shapes(config), ignored=lambda name: name.endswith(_IGNORED))


@torch.no_grad()
def load_model_folder(model: torch.nn.Module, folder: Path, config: QwenConfig, layout: ParallelLayout) -> None:
    """Set every parameter of this rank from a Hugging Face folder, one at a time.  Raises the errors of
    :func:`check_model_folder`."""
    check_model_folder(folder, config)
    count = config.num_hidden_layers // layout.pp
    layers = range(layout.pp_rank * count, (layout.pp_rank + 1) * count)
    parameters = dict(model.named_parameters())
    with open_tensor_folder(folder) as opened:

        def load(weight: WeightMapping, ours: str = "", theirs: str = "") -> None:
            share = weight.make_shard(
                [opened.read_tensor(theirs + name) for name in weight.hf_shapes], layout.tp, layout.tp_rank
            )
            target = parameters.pop(ours + weight.megatron_name)
            target.copy_(share.reshape(target.shape))

        if layout.is_first_stage:
            load(embedding_mapping(config, layout.tp))
        for local, layer in enumerate(layers):
            for weight in layer_weight_mappings(config):
                load(weight, f"decoder.layers.{local}.", f"model.layers.{layer}.")
        if layout.is_last_stage:
            load(final_norm_mapping(config))
            if not (layout.is_first_stage and config.tie_word_embeddings):
                load(output_mapping(config, layout.tp))
    if parameters:
        raise RuntimeError(f"no weights for {sorted(parameters)}")


class PlacedWeight(NamedTuple):
    """A weight with its pipeline stage and the prefixes of its names."""

    weight: WeightMapping
    stage: int
    megatron_prefix: str = ""
    hf_prefix: str = ""


def assign_to_layers(
    weights: Iterable[WeightMapping], config: QwenConfig, layout: ParallelLayout
) -> Iterator[PlacedWeight]:
    """Yield ``weights`` for each layer of the whole model."""
    per_stage, weights = config.num_hidden_layers // layout.pp, list(weights)
    for layer in range(config.num_hidden_layers):
        stage, local = divmod(layer, per_stage)
        for weight in weights:
            yield PlacedWeight(weight, stage, f"decoder.layers.{local}.", f"model.layers.{layer}.")


def export_weights(model: torch.nn.Module, config: QwenConfig, layout: ParallelLayout) -> Iterator[NamedWeight]:
    """Yield all weights under Hugging Face names, in the order of :func:`hf_tensor_shapes`, as copies on the CPU.

    Every rank gets every tensor; adapters are merged.  A collective over the tensor-parallel and pipeline groups: all
    ranks of one replica iterate together.
    """
    last = layout.pp - 1
    output = [] if config.tie_word_embeddings else [PlacedWeight(output_mapping(config, layout.tp), last)]
    layers = assign_to_layers(layer_weight_mappings(config), config, layout)
    placed = [
        PlacedWeight(embedding_mapping(config, layout.tp), 0),
        *layers,
        PlacedWeight(final_norm_mapping(config), last),
        *output,
    ]
    return gather_weights(model, placed, layout)


@torch.no_grad()
def gather_weights(
    model: torch.nn.Module, placed: Iterable[PlacedWeight], layout: ParallelLayout
) -> Iterator[NamedWeight]:
    """Yield the tensors of these weights like :func:`export_weights`."""
    parameters, adapted = dict(model.named_parameters()), adapters_by_weight(model)
    any_parameter = next(iter(parameters.values()))

    def whole(weight: WeightMapping, name: str) -> list[Tensor]:
        own = parameters[name].detach()
        if name in adapted:
            own = adapted[name].merge_into(own)
        if layout.tp == 1 or weight.shard_dim is None:
            return weight.join_shards([own])
        shares = [torch.empty_like(own) for _ in range(layout.tp)]
        all_gather(shares, own.contiguous(), layout.tp_group)
        return weight.join_shards(shares)

    for weight, stage, ours, theirs in placed:
        mine = whole(weight, ours + weight.megatron_name) if layout.pp_rank == stage else None
        for index, (name, shape) in enumerate(weight.hf_shapes.items()):
            tensor = mine[index].contiguous() if mine is not None else any_parameter.new_empty(shape)
            if layout.pp > 1:
                dist.broadcast(tensor, group_src=stage, group=layout.pp_group)
            yield NamedWeight(theirs + name, tensor.to("cpu", copy=True))
