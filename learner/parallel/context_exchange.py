"""Context parallelism on the device: what ranks hand each other (keys and values on the way in, log-probabilities on
the way out), and attention of chunks over the sequences before them."""
# pyright: reportUnknownMemberType=false, reportIncompatibleMethodOverride=false, reportUntypedFunctionDecorator=false
# (torch types neither autograd.Function.apply nor ctx; forward and backward are meant to be overridden freely)
# ruff: noqa: N803 - shape suffixes

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.autograd.function import once_differentiable

from learner.data.micro_batches import ContextChunks, ContextShard
from learner.tensors import all_gather_rows, from_numpy, reduce_scatter_rows, split_rows

_BAND_PLACES = 4 << 20
_LEAST_QUERIES = 64


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any, own: Tensor, places: Tensor, width: int, group: dist.ProcessGroup, summed: bool
    ) -> Tensor:
        ctx.save_for_backward(places)
        ctx.arguments = len(own), width, group, summed
        filled = F.pad(own.flatten(1), (0, 0, 0, width - len(own)))
        whole = filled.new_empty(group.size() * width, filled.shape[1])
        all_gather_rows(whole, filled, group)
        return whole.index_select(0, places).view(len(places), *own.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        count, width, group, summed = ctx.arguments
        flat = grad.flatten(1)
        whole = flat.new_zeros(group.size() * width, flat.shape[1]).index_copy_(0, places, flat)
        own = whole[group.rank() * width :][:width]
        if summed:
            own = torch.empty_like(own)
            reduce_scatter_rows(own, whole, group)
        return own[:count].view(count, *grad.shape[1:]), None, None, None, None


def gather_rows(own: Tensor, places_M: Tensor, width: int, group: dist.ProcessGroup, *, summed: bool) -> Tensor:
    """[M, ...]: rows of all ranks, of which this one has ``own`` [≤ width, ...]; row m stands at ``places_M[m]`` among
    the ranks' rows, one rank's ``width`` rows after the other's.

    The gradient of ``own`` is its slice of the result's: of this rank's alone, where every rank goes on to compute the
    same loss from the result, or ``summed`` over the ranks, where each computes something else."""
    return cast("Tensor", _Gather.apply(own, places_M, width, group, summed))


class SequenceBounds(NamedTuple):
    """Where sequences end, as torch's variable-length kernel wants it."""

    queries: Tensor
    """int32 [sequences + 1]"""
    keys: Tensor
    longest_query: int
    longest_key: int


@dataclass(frozen=True, slots=True, eq=False)
class PrefixAttentionCall:
    """Chunks of sequences against the sequences up to each chunk's end; see
    :class:`learner.data.context_parallel.Half`."""

    tokens: slice
    """Of this rank's rows."""
    key_rows: Tensor
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    bounds: SequenceBounds


@dataclass(frozen=True, slots=True, eq=False)
class DeviceContextShard:
    """How a micro-batch is shared over context-parallel ranks; see
    :class:`learner.data.context_parallel.ContextShare`."""

    group: dist.ProcessGroup
    width: int
    places: Tensor
    calls: tuple[PrefixAttentionCall, ...]
    target_width: int
    target_places: Tensor

    def gather_tokens(self, own: Tensor) -> Tensor:
        """[width, ...] → [T, ...] of the whole micro-batch, which each rank then uses for its own queries."""
        return gather_rows(own, self.places, self.width, self.group, summed=True)

    def gather_targets(self, own: Tensor) -> Tensor:
        """[n, ...] → [N, ...] of all tokens with loss, from which each rank then computes the same loss."""
        return gather_rows(own, self.target_places, self.target_width, self.group, summed=False)


def make_sequence_bounds(queries: Sequence[int], keys: Sequence[int], place: torch.device) -> SequenceBounds:
    query_ends, key_ends = (
        torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=place) for lengths in (queries, keys)
    )
    return SequenceBounds(query_ends, key_ends, max(queries), max(keys))


def context_shard_to_device(context: ContextShard, group: dist.ProcessGroup, place: torch.device) -> DeviceContextShard:
    """``context`` on the device."""

    def call(half: ContextChunks) -> PrefixAttentionCall:
        tokens = slice(half.start, half.start + sum(half.queries))
        bounds = make_sequence_bounds(half.queries, half.keys, place)
        return PrefixAttentionCall(tokens, from_numpy(half.key_rows).to(place), half.queries, half.keys, bounds)

    return DeviceContextShard(
        group=group,
        width=context.width,
        places=from_numpy(context.places).to(place),
        calls=tuple(call(half) for half in context.chunk_pairs if half.queries),
        target_width=context.target_width,
        target_places=from_numpy(context.target_places).to(place),
    )


def prefix_attention(
    query_QND: Tensor, key_MKD: Tensor, value_MKD: Tensor, call: PrefixAttentionCall, scale: float
) -> Tensor:
    """[Q, N · D]: the queries of each chunk are the last of its keys.

    A block of queries at a time, whose mask is part of one band: what the gradient keeps of masks is that band, and not
    queries times keys."""
    width = max(call.keys)
    rows = min(max(call.queries), max(_LEAST_QUERIES, _BAND_PLACES // width))
    hidden = torch.ones(rows, width + rows, dtype=torch.bool, device=query_QND.device).triu_(width + 1)
    band = query_QND.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
    found: list[Tensor] = []
    keys, values = split_rows(key_MKD, call.keys), split_rows(value_MKD, call.keys)
    for query, key, value in zip(split_rows(query_QND, call.queries), keys, values, strict=True):
        before = len(key) - len(query)
        for start in range(0, len(query), rows):
            block = query[start : start + rows]
            seen = before + len(block)
            q, k, v = (x.transpose(0, 1)[None] for x in (block, key[:seen], value[:seen]))
            mask = band[: len(block), width - before : width + len(block)]
            out = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
            found.append(out[0].transpose(0, 1).flatten(1))
            before = seen
    return torch.cat(found)
