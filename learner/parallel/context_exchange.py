"""Context parallelism on the device: exchange of keys and values and of log-probabilities between ranks, and attention
of chunks over the sequences before them."""
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

BAND_PLACES = 4 << 20
LEAST_QUERIES = 64


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any, own: Tensor, row_indices: Tensor, width: int, group: dist.ProcessGroup, summed: bool
    ) -> Tensor:
        ctx.save_for_backward(row_indices)
        ctx.arguments = len(own), width, group, summed
        filled = F.pad(own.flatten(1), (0, 0, 0, width - len(own)))
        whole = filled.new_empty(group.size() * width, filled.shape[1])
        all_gather_rows(whole, filled, group)
        return whole.index_select(0, row_indices).view(len(row_indices), *own.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (row_indices,) = ctx.saved_tensors
        count, width, group, summed = ctx.arguments
        flat = grad.flatten(1)
        whole = flat.new_zeros(group.size() * width, flat.shape[1]).index_copy_(0, row_indices, flat)
        own = whole[group.rank() * width :][:width]
        if summed:
            own = torch.empty_like(own)
            reduce_scatter_rows(own, whole, group)
        return own[:count].view(count, *grad.shape[1:]), None, None, None, None


def gather_rows(own: Tensor, rows_M: Tensor, width: int, group: dist.ProcessGroup, *, summed: bool) -> Tensor:
    """Return [M, ...]: row m is row ``rows_M[m]`` of all ranks' rows, ``width`` rows per rank; this rank has ``own``
    [≤ width, ...].

    The gradient of ``own`` is its slice of the result's gradient: this rank's alone if every rank computes the same
    loss from the result, or ``summed`` over the ranks if each computes something else."""
    return cast("Tensor", _Gather.apply(own, rows_M, width, group, summed))


class SequenceBounds(NamedTuple):
    """Ends of sequences in the form of torch's variable-length kernel."""

    queries: Tensor
    """int32 [sequences + 1]"""
    keys: Tensor
    longest_query: int
    longest_key: int


@dataclass(frozen=True, slots=True, eq=False)
class PrefixAttentionCall:
    """Attention of chunks over their sequences up to each chunk's end; see
    :class:`learner.data.micro_batches.ContextChunks`."""

    tokens: slice
    """This rank's rows of the queries."""
    key_rows: Tensor
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    bounds: SequenceBounds


@dataclass(frozen=True, slots=True, eq=False)
class DeviceContextShard:
    """Split of a micro-batch over context-parallel ranks; see :class:`learner.data.micro_batches.ContextShard`."""

    group: dist.ProcessGroup
    width: int
    row_indices: Tensor
    calls: tuple[PrefixAttentionCall, ...]
    target_width: int
    target_row_indices: Tensor

    def gather_tokens(self, own: Tensor) -> Tensor:
        """Return [T, ...] of the whole micro-batch from ``own`` [width, ...]; each rank uses it for its own queries."""
        return gather_rows(own, self.row_indices, self.width, self.group, summed=True)

    def gather_targets(self, own: Tensor) -> Tensor:
        """Return [N, ...] of all tokens with loss from ``own`` [n, ...]; each rank computes the same loss from it."""
        return gather_rows(own, self.target_row_indices, self.target_width, self.group, summed=False)


def make_sequence_bounds(queries: Sequence[int], keys: Sequence[int], device: torch.device) -> SequenceBounds:
    query_ends, key_ends = (
        torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=device) for lengths in (queries, keys)
    )
    return SequenceBounds(query_ends, key_ends, max(queries), max(keys))


def context_shard_to_device(
    context: ContextShard, group: dist.ProcessGroup, device: torch.device
) -> DeviceContextShard:
    """Copy ``context`` to the device."""

    def call(half: ContextChunks) -> PrefixAttentionCall:
        tokens = slice(half.start, half.start + sum(half.queries))
        bounds = make_sequence_bounds(half.queries, half.keys, device)
        return PrefixAttentionCall(tokens, from_numpy(half.key_rows).to(device), half.queries, half.keys, bounds)

    return DeviceContextShard(
        group=group,
        width=context.width,
        row_indices=from_numpy(context.row_indices).to(device),
        calls=tuple(call(half) for half in context.chunk_pairs if half.queries),
        target_width=context.target_width,
        target_row_indices=from_numpy(context.target_row_indices).to(device),
    )


def prefix_attention(
    query_QND: Tensor, key_MKD: Tensor, value_MKD: Tensor, call: PrefixAttentionCall, scale: float
) -> Tensor:
    """Return attention [Q, N · D]; the queries of each chunk are the last of its keys.

    It runs on blocks of queries whose masks are views of one band, so that the gradient keeps that band instead of
    queries × keys."""
    width = max(call.keys)
    rows = min(max(call.queries), max(LEAST_QUERIES, BAND_PLACES // width))
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
