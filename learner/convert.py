"""Weights between Hugging Face's layout and megatron's, one tensor at a time, bit for bit.

Megatron keeps q, k and v of each key-value head together in one matrix, gate and up projection of each tensor-parallel
rank one above the other, and shares matrices over ranks by rows or columns.  What becomes of which tensor is data, a
:class:`Weight` each.  (Experts would be further entries of :func:`layer_weights`; nothing below it would change.)
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

from learner.adapters import adapters
from learner.folder import NamedWeight, Shape, open_folder
from learner.parallel import Layout
from learner.qwen import QwenConfig, padded_vocabulary
from learner.tensors import all_gather

_IGNORED = ("lm_head.weight", "rotary_emb.inv_freq")
"""Ends of names that some folders have in vain: of a tied output layer, and of a table that is computed here."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter of megatron's and the Hugging Face tensors that it is made of.

    Each of ``theirs`` is seen as [blocks, rows ÷ blocks, ...]; they are joined along one of these dimensions and shared
    over the tensor-parallel ranks along one."""

    ours: str
    theirs: dict[str, Shape]
    blocks: int = 1
    joined_on: int = 1
    shared_on: int | None = 1
    """None: each rank has all of it."""
    rows: int | None = None
    """With a value: zero rows are added up to so many."""

    def share(self, tensors: Sequence[Tensor], tp: int, rank: int) -> Tensor:
        """[blocks, ...]: what one of ``tp`` ranks holds."""
        blocks = [tensor.reshape(self._part(tuple(tensor.shape))) for tensor in tensors]
        joined = torch.cat(blocks, self.joined_on) if len(blocks) > 1 else blocks[0]
        missing = (self.rows or 0) - joined.shape[1]
        if missing > 0:
            joined = torch.cat([joined, joined.new_zeros(1, missing, *joined.shape[2:])], 1)
        return joined if self.shared_on is None else joined.chunk(tp, self.shared_on)[rank]

    def whole(self, shares: Sequence[Tensor]) -> list[Tensor]:
        """The inverse of :meth:`share`, from the parameters of all ranks in order."""
        tp = len(shares)
        joined = torch.cat([share.reshape(self._shape(tp)) for share in shares], self.shared_on or 0)
        ends = list(accumulate(self._part(shape)[self.joined_on] for shape in self.theirs.values()))
        parts = joined.tensor_split(ends, self.joined_on)
        return [part.reshape(shape) for part, shape in zip(parts, self.theirs.values(), strict=False)]

    def _part(self, shape: Shape) -> Shape:
        return (self.blocks, shape[0] // self.blocks, *shape[1:])

    def _shape(self, tp: int) -> Shape:
        """Of a rank's share, before it is flattened into the parameter."""
        parts = [list(self._part(shape)) for shape in self.theirs.values()]
        joined = parts[0]
        joined[self.joined_on] = sum(part[self.joined_on] for part in parts)
        if self.rows is not None:
            joined[1] = self.rows
        if self.shared_on is not None:
            joined[self.shared_on] //= tp
        return tuple(joined)


def layer_weights(config: QwenConfig) -> list[Weight]:
    """Of one layer, by names within the layer, in the order of Hugging Face's modules."""
    hidden, inner, groups = config.hidden_size, config.intermediate_size, config.num_key_value_heads
    sizes = {"q": config.query_size, "k": config.key_size, "v": config.key_size}

    def norm(ours: str, theirs: str, size: int) -> Weight:
        return Weight(f"{ours}.weight", {f"{theirs}.weight": (size,)}, shared_on=None)

    def qkv(what: str, *rest: int) -> Weight:
        theirs = {f"self_attn.{part}_proj.{what}": (size, *rest) for part, size in sizes.items()}
        return Weight(f"self_attention.linear_qkv.{what}", theirs, blocks=groups, shared_on=0)

    def columns(ours: str, theirs: str, size: int) -> Weight:
        return Weight(f"{ours}.weight", {f"{theirs}.weight": (hidden, size)}, shared_on=2)

    halves = {f"mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
    found = [qkv("weight", hidden), columns("self_attention.linear_proj", "self_attn.o_proj", config.query_size)]
    if config.family.qkv_bias:
        found.append(qkv("bias"))
    if config.family.qk_norm:
        found += [norm(f"self_attention.{x}_layernorm", f"self_attn.{x}_norm", config.head_dim) for x in "qk"]
    return [
        *found,
        Weight("mlp.linear_fc1.weight", halves, joined_on=0),
        columns("mlp.linear_fc2", "mlp.down_proj", inner),
        norm("input_layernorm", "input_layernorm", hidden),
        norm("pre_mlp_layernorm", "post_attention_layernorm", hidden),
    ]


def embedding_weight(config: QwenConfig, tp: int) -> Weight:
    return _table("embedding.word_embeddings.weight", "model.embed_tokens.weight", config, tp)


def output_weight(config: QwenConfig, tp: int) -> Weight:
    name = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return _table("output_layer.weight", name, config, tp)


def _table(ours: str, theirs: str, config: QwenConfig, tp: int) -> Weight:
    return Weight(ours, {theirs: (config.vocab_size, config.hidden_size)}, rows=padded_vocabulary(config, tp))


def final_norm(config: QwenConfig) -> Weight:
    return Weight("decoder.final_layernorm.weight", {"model.norm.weight": (config.hidden_size,)}, shared_on=None)


def shapes(config: QwenConfig) -> dict[str, Shape]:
    """All tensors of the model by their Hugging Face names, in the order of :func:`export`."""
    found = dict(embedding_weight(config, 1).theirs)
    for layer in range(config.num_hidden_layers):
        for weight in layer_weights(config):
            found |= {f"model.layers.{layer}.{name}": shape for name, shape in weight.theirs.items()}
    return found | final_norm(config).theirs | output_weight(config, 1).theirs


def sizes(config: QwenConfig, dtype: torch.dtype) -> dict[str, int]:
    """Bytes of each of :func:`shapes` in that type."""
    return {name: prod(shape) * dtype.itemsize for name, shape in shapes(config).items()}


def check_folder(folder: Path, config: QwenConfig) -> None:
    """Raises UserError where the folder's files are missing, damaged, or not those of ``config``'s model; reads their
    headers only."""
    with open_folder(folder) as opened:
        opened.check(shapes(config), ignored=lambda name: name.endswith(_IGNORED))


@torch.no_grad()
def load_folder(model: torch.nn.Module, folder: Path, config: QwenConfig, layers: range, layout: Layout) -> None:
    """Set every parameter of this rank from a Hugging Face folder, one after the other.  ``layers`` are the global
    indices of its layers.  Raises what :func:`check_folder` does."""
    check_folder(folder, config)
    parameters = dict(model.named_parameters())
    with open_folder(folder) as opened:

        def load(weight: Weight, ours: str = "", theirs: str = "") -> None:
            share = weight.share([opened.read(theirs + name) for name in weight.theirs], layout.tp, layout.tp_rank)
            target = parameters.pop(ours + weight.ours)
            target.copy_(share.reshape(target.shape))

        if layout.first_stage:
            load(embedding_weight(config, layout.tp))
        for local, layer in enumerate(layers):
            for weight in layer_weights(config):
                load(weight, f"decoder.layers.{local}.", f"model.layers.{layer}.")
        if layout.last_stage:
            load(final_norm(config))
            if not (layout.first_stage and config.tie_word_embeddings):
                load(output_weight(config, layout.tp))
    if parameters:
        raise RuntimeError(f"no weights for {sorted(parameters)}")


class Placed(NamedTuple):
    """Where a weight is: on a pipeline stage, under names that begin so."""

    weight: Weight
    stage: int
    ours: str = ""
    theirs: str = ""


def on_layers(weights: Iterable[Weight], config: QwenConfig, layout: Layout) -> Iterator[Placed]:
    """``weights`` of each layer of the whole model."""
    per_stage, weights = config.num_hidden_layers // layout.pp, list(weights)
    for layer in range(config.num_hidden_layers):
        stage, local = divmod(layer, per_stage)
        for weight in weights:
            yield Placed(weight, stage, f"decoder.layers.{local}.", f"model.layers.{layer}.")


def export(model: torch.nn.Module, config: QwenConfig, layout: Layout) -> Iterator[NamedWeight]:
    """All weights under Hugging Face names, in the order of :func:`shapes`, as copies on the CPU; every rank gets every
    tensor.  Adapters are merged into the weights that they add to.  A collective over the tensor-parallel and pipeline
    groups: all ranks of one replica iterate together."""
    last = layout.pp - 1
    output = [] if config.tie_word_embeddings else [Placed(output_weight(config, layout.tp), last)]
    layers = on_layers(layer_weights(config), config, layout)
    places = [Placed(embedding_weight(config, layout.tp), 0), *layers, Placed(final_norm(config), last), *output]
    return gathered(model, places, layout)


@torch.no_grad()
def gathered(model: torch.nn.Module, places: Iterable[Placed], layout: Layout) -> Iterator[NamedWeight]:
    """The tensors of these, as :func:`export` gives them."""
    parameters, adapted = dict(model.named_parameters()), adapters(model)
    any_parameter = next(iter(parameters.values()))

    def whole(weight: Weight, name: str) -> list[Tensor]:
        own = parameters[name].detach()
        if name in adapted:
            own = adapted[name].merged(own)
        if layout.tp == 1 or weight.shared_on is None:
            return weight.whole([own])
        shares = [torch.empty_like(own) for _ in range(layout.tp)]
        all_gather(shares, own.contiguous(), layout.tp_group)
        return weight.whole(shares)

    for weight, stage, ours, theirs in places:
        mine = whole(weight, ours + weight.ours) if layout.pp_rank == stage else None
        for index, (name, shape) in enumerate(weight.theirs.items()):
            tensor = mine[index].contiguous() if mine is not None else any_parameter.new_empty(shape)
            if layout.pp > 1:
                dist.broadcast(tensor, group_src=stage, group=layout.pp_group)
            yield NamedWeight(theirs + name, tensor.to("cpu", copy=True))
