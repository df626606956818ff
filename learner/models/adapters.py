"""LoRA adapters: y = W·x + s·B·(A·x) with W frozen (LoRA, arXiv 2106.09685, section 4.1).

An adapter adds to the output of one of megatron's linear layers.  Each projection that the layer computes (q, k and v
are one layer, gate and up another) has its own matrices, as in Hugging Face's model.

For a column-parallel layer every rank has all of A and its own rows of B; for a row-parallel one its own columns of A
and all of B.  So ranks exchange only [T, rank] for an adapter, and replicated matrices are equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from learner.parallel import megatron_on_cpu
from learner.parallel.megatron import (
    copy_to_tensor_parallel,
    gather_sequence,
    make_sharded_tensors,
    reduce_from_tensor_parallel,
    reduce_scatter_sequence,
)
from learner.tensors import at_least_float32

ADAPTER_SUFFIX = "_lora"
"""Suffix of an adapter's name after its layer's; both have the same parent."""


class AdaptedLayer(NamedTuple):
    """This rank's part of a linear layer."""

    rows: Mapping[str, int]
    """Number of rows of each projection."""
    columns: int
    blocks: int
    """Number of blocks into which each projection's rows are interleaved: the key-value heads."""
    row_parallel: bool
    sequence_parallel: bool
    group: dist.ProcessGroup
    """Ranks that share the layer."""
    dtype: torch.dtype


class LoraMatrices(torch.nn.Module):
    """Matrices A [rank, columns] and B [rows, rank] of one projection, initially zero."""

    def __init__(self, rank: int, rows: int, site: AdaptedLayer) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(
            torch.zeros(rank, site.columns, dtype=site.dtype, device=megatron_on_cpu.rank_device())
        )
        self.b = torch.nn.Parameter(torch.zeros(rows, rank, dtype=site.dtype, device=megatron_on_cpu.rank_device()))
        shared, whole = (self.a, self.b) if site.row_parallel else (self.b, self.a)
        # Megatron's attributes: a gradient norm counts replicated parameters once, and with sequence parallelism each
        # rank has the gradient of its own tokens only.
        vars(shared).update(tensor_model_parallel=True, partition_dim=int(site.row_parallel), partition_stride=1)
        vars(whole)["sequence_parallel"] = site.sequence_parallel


class LoraAdapter(torch.nn.Module):
    """The adapter of one linear layer; see the module."""

    def __init__(self, site: AdaptedLayer, targets: Iterable[str], rank: int, scale: float) -> None:
        """``targets`` are the layer's projections with matrices; ``scale`` multiplies their product."""
        super().__init__()
        self.active = True
        """If false, the layer behaves as without an adapter."""
        self._site, self._rank, self._scale = site, rank, scale
        self._pairs = {target: LoraMatrices(rank, site.rows[target], site) for target in targets}
        for target, pair in self._pairs.items():
            self.add_module(target, pair)

    def add_to_output(
        self, _layer: object, inputs: tuple[Tensor, ...], output: tuple[Tensor, object]
    ) -> tuple[Tensor, object]:
        """Add the adapter's output to the layer's; a forward hook of the layer."""
        return (output[0] + self(inputs[0]), output[1]) if self.active else output

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, 1, rows] for ``x`` [T, 1, columns], both in the layer's own layout: with sequence parallelism only
        this rank's tokens before a column-parallel layer and after a row-parallel one."""
        site = self._site
        low = F.linear(x, torch.cat([pair.a for pair in self._pairs.values()])) * self._scale
        if site.row_parallel:
            combine = reduce_scatter_sequence if site.sequence_parallel else reduce_from_tensor_parallel
            low = combine(low, group=site.group)
        elif site.sequence_parallel:
            low = gather_sequence(low, tensor_parallel_output_grad=True, group=site.group)
        else:
            low = copy_to_tensor_parallel(low, group=site.group)
        parts = zip(self._pairs.items(), low.split(self._rank, -1), strict=True)
        return self._joined({target: F.linear(part, pair.b) for (target, pair), part in parts}, 2)

    def merge_into(self, weight: Tensor) -> Tensor:
        """Return the layer's weight [rows, columns] with the adapter added, computed in float32 or float64."""
        wide = at_least_float32(weight)
        products = {target: at_least_float32(pair.b) @ at_least_float32(pair.a) for target, pair in self._pairs.items()}
        return wide.add(self._joined(products, 0), alpha=self._scale).to(weight.dtype)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Sequence[Any] = (), metadata: Any = None) -> Any:
        """Return megatron's sharded state dict for checkpoints."""
        which, axis = ("a", 1) if self._site.row_parallel else ("b", 0)
        axes = {f"{target}.{which}": axis for target in self._pairs}
        own = self.state_dict(prefix="", keep_vars=True)
        return make_sharded_tensors(
            own, prefix, axes, sharded_offsets, tp_group=self._site.group, dp_cp_group=metadata["dp_cp_group"]
        )

    def _joined(self, found: Mapping[str, Tensor], dim: int) -> Tensor:
        """Join the projections' rows along ``dim`` in the layer's order, with zeros for projections without
        matrices."""
        any_part = next(iter(found.values()))
        before, after = any_part.shape[:dim], any_part.shape[dim + 1 :]
        parts = [
            found[target] if target in found else any_part.new_zeros((*before, rows, *after))
            for target, rows in self._site.rows.items()
        ]
        if len(parts) == 1:
            return parts[0]
        blocks = [part.reshape(*before, self._site.blocks, -1, *after) for part in parts]
        return torch.cat(blocks, dim + 1).flatten(dim, dim + 1)


def adapters_by_weight(model: torch.nn.Module) -> dict[str, LoraAdapter]:
    """Return the adapters by the name of the weight that they add to."""
    named = cast("Callable[[], Iterable[tuple[str, torch.nn.Module]]]", model.named_modules)
    return {
        f"{name.removesuffix(ADAPTER_SUFFIX)}.weight": module
        for name, module in named()
        if isinstance(module, LoraAdapter)
    }
