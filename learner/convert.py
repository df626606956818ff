"""Weights between a Hugging Face folder and megatron's layout, one tensor at a time, bit for bit.

Megatron keeps q, k and v of each key-value head together in one matrix, gate and up projection of each tensor-parallel
rank one above the other, and shares matrices over ranks by rows or columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import safetensors
import torch
import torch.distributed as dist
from torch import Tensor

from learner.parallel import Layout
from learner.qwen import INDEX_FILE, SINGLE_FILE, QwenConfig, padded_vocabulary
from learner.tensors import all_gather
from protocol.errors import UserError

_EMBEDDING, _HEAD, _FINAL_NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


class NamedWeight(NamedTuple):
    name: str
    tensor: Tensor


class _TensorFile(Protocol):
    """safetensors' reader, which ships no types."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...


def _open(path: Path) -> AbstractContextManager[_TensorFile]:
    opener: Callable[..., AbstractContextManager[_TensorFile]] = vars(safetensors)["safe_open"]
    return opener(path, framework="pt")


@contextmanager
def open_folder(folder: Path) -> Generator[Callable[[str], Tensor]]:
    """A reader ``name → tensor`` of a folder with one safetensors file or an index of several; tensors are read when
    asked for.  Raises UserError for a folder without them or a name that it lacks."""
    if (folder / INDEX_FILE).exists():
        files: dict[str, str] = json.loads((folder / INDEX_FILE).read_text())["weight_map"]
    elif (folder / SINGLE_FILE).exists():
        with _open(folder / SINGLE_FILE) as file:
            files = dict.fromkeys(file.keys(), SINGLE_FILE)
    else:
        raise UserError(f"{folder}: neither {SINGLE_FILE} nor {INDEX_FILE}; model_path must be a Hugging Face folder")
    with ExitStack() as stack:
        opened = {name: stack.enter_context(_open(folder / name)) for name in set(files.values())}

        def read(name: str) -> Tensor:
            if name not in files:
                raise UserError(f"{folder}: no tensor {name}; config.json and weights are of different models")
            return opened[files[name]].get_tensor(name)

        yield read


def fuse_qkv(q: Tensor, k: Tensor, v: Tensor, config: QwenConfig) -> Tensor:
    """[q heads · D, H], [kv heads · D, H] twice → megatron's [(q heads + 2 · kv heads) · D, H]."""
    groups, hidden = config.num_key_value_heads, q.shape[-1]
    return torch.cat([x.view(groups, -1, hidden) for x in (q, k, v)], dim=1).reshape(-1, hidden)


def split_qkv(fused: Tensor, config: QwenConfig) -> tuple[Tensor, Tensor, Tensor]:
    """The inverse of :func:`fuse_qkv`."""
    groups, size, hidden = config.num_key_value_heads, config.head_dim, fused.shape[-1]
    queries = config.num_attention_heads // groups * size
    grouped = fused.view(groups, -1, hidden)
    q, k, v = grouped[:, :queries], grouped[:, queries : queries + size], grouped[:, queries + size :]
    return q.reshape(-1, hidden), k.reshape(-1, hidden), v.reshape(-1, hidden)


def pad_rows_to(table: Tensor, rows: int) -> Tensor:
    """``table`` with zero rows added at the end."""
    missing = rows - table.shape[0]
    return table if not missing else torch.cat([table, table.new_zeros(missing, *table.shape[1:])])


def to_megatron(
    read: Callable[[str], Tensor], config: QwenConfig, layers: list[int], layout: Layout
) -> Iterator[NamedWeight]:
    """This rank's parameters under megatron's names.  ``layers`` are the global indices of its layers, in order."""
    tp, rank = layout.tp, layout.tp_rank
    padded = padded_vocabulary(config, tp)

    def share(tensor: Tensor, dim: int) -> Tensor:
        return tensor.chunk(tp, dim)[rank]

    if layout.first_stage:
        yield NamedWeight("embedding.word_embeddings.weight", share(pad_rows_to(read(_EMBEDDING), padded), 0))
    for local, layer in enumerate(layers):
        source, target = f"model.layers.{layer}.", f"decoder.layers.{local}."
        for theirs, ours in _SAME:
            yield NamedWeight(target + ours, read(source + theirs))
        qkv = fuse_qkv(*(read(f"{source}self_attn.{part}_proj.weight") for part in "qkv"), config=config)
        yield NamedWeight(target + "self_attention.linear_qkv.weight", share(qkv, 0))
        yield NamedWeight(
            target + "self_attention.linear_proj.weight", share(read(source + "self_attn.o_proj.weight"), 1)
        )
        halves = [share(read(f"{source}mlp.{part}_proj.weight"), 0) for part in ("gate", "up")]
        yield NamedWeight(target + "mlp.linear_fc1.weight", torch.cat(halves))
        yield NamedWeight(target + "mlp.linear_fc2.weight", share(read(source + "mlp.down_proj.weight"), 1))
    if layout.last_stage:
        yield NamedWeight("decoder.final_layernorm.weight", read(_FINAL_NORM))
        if not (layout.first_stage and config.tie_word_embeddings):
            table = read(_EMBEDDING if config.tie_word_embeddings else _HEAD)
            yield NamedWeight("output_layer.weight", share(pad_rows_to(table, padded), 0))


_SAME = (
    ("input_layernorm.weight", "input_layernorm.weight"),
    ("post_attention_layernorm.weight", "pre_mlp_layernorm.weight"),
    ("self_attn.q_norm.weight", "self_attention.q_layernorm.weight"),
    ("self_attn.k_norm.weight", "self_attention.k_layernorm.weight"),
)


@torch.no_grad()
def load_folder(model: torch.nn.Module, folder: Path, config: QwenConfig, layers: list[int], layout: Layout) -> None:
    """Set every parameter of this rank from a Hugging Face folder.  Raises UserError where shapes do not fit."""
    parameters = dict(model.named_parameters())
    with open_folder(folder) as read:
        for name, tensor in to_megatron(read, config, layers, layout):
            target = parameters.pop(name)
            if target.shape != tensor.shape:
                raise UserError(
                    f"{folder}: {name} has shape {tuple(tensor.shape)}, config.json says {tuple(target.shape)}"
                )
            target.copy_(tensor)
    if parameters:
        raise RuntimeError(f"no weights for {sorted(parameters)}")


@torch.no_grad()
def export(model: torch.nn.Module, config: QwenConfig, layout: Layout) -> Iterator[NamedWeight]:
    """All weights under Hugging Face names, in the model's order, as copies on the CPU; every rank gets every tensor.
    A collective over the tensor-parallel and pipeline groups: all ranks of one replica iterate together."""
    parameters = dict(model.named_parameters())
    per_stage = config.num_hidden_layers // layout.pp
    dtype = next(iter(parameters.values())).dtype
    place = next(iter(parameters.values())).device

    def whole(name: str, dim: int) -> Tensor:
        """A parameter of this stage, gathered over the tensor-parallel ranks; each of them has all of a norm."""
        own = parameters[name].detach()
        if layout.tp == 1 or own.ndim == 1:
            return own
        parts = [torch.empty_like(own) for _ in range(layout.tp)]
        all_gather(parts, own.contiguous(), layout.tp_group)
        if name.endswith("linear_fc1.weight"):
            gates, ups = zip(*(part.chunk(2) for part in parts), strict=True)
            return torch.cat([*gates, *ups])
        return torch.cat(parts, dim)

    def from_stage(stage: int, shape: tuple[int, ...], make: Callable[[], Tensor]) -> Tensor:
        tensor = make().contiguous() if layout.pp_rank == stage else torch.empty(shape, dtype=dtype, device=place)
        if layout.pp > 1:
            dist.broadcast(tensor, group_src=stage, group=layout.pp_group)
        return tensor

    def out(name: str, tensor: Tensor) -> NamedWeight:
        return NamedWeight(name, tensor.to("cpu", copy=True))

    hidden, vocabulary = config.hidden_size, config.vocab_size
    yield out(
        _EMBEDDING,
        from_stage(0, (vocabulary, hidden), lambda: whole("embedding.word_embeddings.weight", 0)[:vocabulary]),
    )
    shapes = _layer_shapes(config)
    for layer in range(config.num_hidden_layers):
        stage, local = divmod(layer, per_stage)
        parts = _layer_parts(whole, f"decoder.layers.{local}.", config) if layout.pp_rank == stage else {}
        for name, shape in shapes.items():
            yield out(f"model.layers.{layer}.{name}", from_stage(stage, shape, lambda at=name, of=parts: of[at]))
    last = layout.pp - 1
    yield out(_FINAL_NORM, from_stage(last, (hidden,), lambda: whole("decoder.final_layernorm.weight", 0)))
    if not config.tie_word_embeddings:
        yield out(_HEAD, from_stage(last, (vocabulary, hidden), lambda: whole("output_layer.weight", 0)[:vocabulary]))


def _layer_shapes(config: QwenConfig) -> dict[str, tuple[int, ...]]:
    """Hugging Face names of one layer, in the order of its modules."""
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.num_attention_heads * size, config.num_key_value_heads * size
    return {
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "self_attn.q_norm.weight": (size,),
        "self_attn.k_norm.weight": (size,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }


def _layer_parts(whole: Callable[[str, int], Tensor], prefix: str, config: QwenConfig) -> dict[str, Tensor]:
    q, k, v = split_qkv(whole(prefix + "self_attention.linear_qkv.weight", 0), config)
    gate, up = whole(prefix + "mlp.linear_fc1.weight", 0).chunk(2)
    parts = {
        "self_attn.q_proj.weight": q,
        "self_attn.k_proj.weight": k,
        "self_attn.v_proj.weight": v,
        "self_attn.o_proj.weight": whole(prefix + "self_attention.linear_proj.weight", 1),
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": whole(prefix + "mlp.linear_fc2.weight", 1),
    }
    return parts | {theirs: whole(prefix + ours, 0) for theirs, ours in _SAME}
