"""Causal self-attention over packed sequences, on torch's own kernels.

It replaces megatron's local attention, which refuses packed sequences.  It applies the rotary embedding itself,
from positions that restart with each sequence.  On CUDA in bfloat16 torch's variable-length kernel takes the packed
tensors as they are; elsewhere each bucket of similar lengths is padded on the right and takes one call: under a causal
mask no token sees the padding after it.

Shapes: ``T`` tokens, ``N`` heads of this rank, ``D`` head size.
"""
# ruff: noqa: N803 - shape suffixes

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from learner.data.micro_batches import AttentionBucket, MicroBatch
from learner.losses.token_columns import TokenColumns
from learner.models.kernels import apply_rotary, pad_rows, take_rows
from learner.parallel.context_exchange import (
    DeviceContextShard,
    SequenceBounds,
    context_shard_to_device,
    make_sequence_bounds,
    prefix_attention,
)
from learner.parallel.megatron import MegatronModule, PackedSeqParams
from learner.tensors import from_numpy


@dataclass(frozen=True, slots=True, eq=False)
class PaddedAttentionCall:
    """One padded attention call over neighbouring sequences."""

    tokens: slice
    shape: tuple[int, int]
    """Number of sequences, and the longest length."""
    source: Tensor | None
    """int64 [padded rows]: row of each, counted from the bucket's first; None if all lengths are equal."""
    positions: Tensor | None
    """int64 [T]: padded index of each row."""


@dataclass(kw_only=True, eq=False)
class PackedBatch(PackedSeqParams):
    """A micro-batch on its device, which megatron passes from the model's input to attention and output.

    Shapes: ``T`` tokens, ``N`` tokens with loss, ``H`` half the head size.  Under context parallelism ``tokens``,
    ``positions``, ``cos``, ``sin``, ``rows`` and ``labels`` are this rank's part; ``columns`` are of all tokens."""

    tokens: Tensor
    """int64 [1, T]"""
    positions: Tensor
    """int64 [1, T]"""
    cos: Tensor
    """float32 or float64 [T, 1, H]"""
    sin: Tensor
    rows: Tensor
    """int64 [N]; see :class:`learner.data.micro_batches.MicroBatch`."""
    labels: Tensor
    columns: TokenColumns[Tensor]
    """Values for the loss, [N] each."""
    calls: tuple[PaddedAttentionCall, ...]
    entropy: bool
    """True if the model computes entropy."""
    context_shard: DeviceContextShard | None = None


def micro_batch_to_device(
    batch: MicroBatch, frequencies_H: Tensor, *, entropy: bool, cp_group: dist.ProcessGroup | None = None
) -> PackedBatch:
    """Copy a micro-batch to the device of ``frequencies_H``, the rotary embedding's frequencies; ``cp_group`` is needed
    for a rank's part of a micro-batch."""
    device = frequencies_H.device
    positions = from_numpy(batch.positions).to(device)
    angles = positions[:, None].to(frequencies_H.dtype) * frequencies_H
    lengths = [length for bucket in batch.buckets for length in bucket.lengths]
    bounds = make_sequence_bounds(lengths, lengths, device)
    return PackedBatch(
        qkv_format="thd",
        cu_seqlens_q=bounds.queries,
        cu_seqlens_kv=bounds.keys,
        max_seqlen_q=bounds.longest_query,
        max_seqlen_kv=bounds.longest_key,
        tokens=from_numpy(batch.token_ids).to(device)[None],
        positions=positions[None],
        cos=angles.cos()[:, None],
        sin=angles.sin()[:, None],
        rows=from_numpy(batch.rows).to(device),
        labels=from_numpy(batch.labels).to(device),
        columns=batch.columns.map(lambda column: from_numpy(column).to(device)),
        calls=tuple(_padded(bucket, device) for bucket in batch.buckets) if batch.context_shard is None else (),
        entropy=entropy,
        context_shard=context_shard_to_device(batch.context_shard, cp_group, device)
        if batch.context_shard is not None and cp_group is not None
        else None,
    )


def _padded(bucket: AttentionBucket, device: torch.device) -> PaddedAttentionCall:
    lengths = np.array(bucket.lengths, dtype=np.int64)
    count, longest = len(lengths), int(lengths.max())
    tokens = slice(bucket.start, bucket.start + int(lengths.sum()))
    if int(lengths.min()) == longest:
        return PaddedAttentionCall(tokens, (count, longest), None, None)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    within = np.arange(longest)
    source = starts[:, None] + np.minimum(within, lengths[:, None] - 1)
    real = within < lengths[:, None]
    return PaddedAttentionCall(
        tokens,
        (count, longest),
        from_numpy(source.reshape(-1)).to(device),
        from_numpy(np.flatnonzero(real)).to(device),
    )


def padded_attention(
    query_TND: Tensor, key_TKD: Tensor, value_TKD: Tensor, call: PaddedAttentionCall, scale: float
) -> Tensor:
    """Return attention [T, N · D] of one bucket; each of ``K`` key heads is shared by N ÷ K query heads."""
    count, longest = call.shape
    padded = [query_TND, key_TKD, value_TKD]
    if call.source is not None and call.positions is not None:
        padded = [pad_rows(x, call.source, call.positions) for x in padded]
    q, k, v = (x.reshape(count, longest, *x.shape[1:]).transpose(1, 2) for x in padded)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    flat = out.transpose(1, 2).reshape(count * longest, -1)
    return flat if call.positions is None else take_rows(flat, call.positions)


class PackedAttention(MegatronModule):
    """``core_attention`` of megatron's SelfAttention, for a :class:`PackedBatch` only."""

    def __init__(self, config: Any, softmax_scale: float | None = None, **_: object) -> None:
        super().__init__(config=config)  # pyright: ignore[reportUnknownMemberType]  untyped in megatron
        self.scale: float = softmax_scale if softmax_scale is not None else config.kv_channels**-0.5

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        packed_seq_params: PackedBatch | None = None,
        **_: object,
    ) -> Tensor:
        """Return [T, N · D] for query [T, N, D], key and value [T, K, D]."""
        batch = packed_seq_params
        if batch is None or attention_mask is not None:
            raise TypeError("PackedAttention takes a PackedBatch and no mask")
        query, key = apply_rotary(query, batch.cos, batch.sin), apply_rotary(key, batch.cos, batch.sin)
        if batch.context_shard is not None:
            return self._context_parallel(query, key, value, batch.context_shard)
        if _has_kernel(query):
            bounds = SequenceBounds(batch.cu_seqlens_q, batch.cu_seqlens_kv, batch.max_seqlen_q, batch.max_seqlen_kv)
            return self._variable_length(query, key, value, bounds)
        parts = [
            padded_attention(query[call.tokens], key[call.tokens], value[call.tokens], call, self.scale)
            for call in batch.calls
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _context_parallel(self, query: Tensor, key: Tensor, value: Tensor, shared: DeviceContextShard) -> Tensor:
        """Return attention over exchanged keys; the tail, which no loss reads, is zero."""
        both = shared.gather_tokens(torch.stack((key, value), 1))
        parts: list[Tensor] = []
        for call in shared.calls:
            k, v = take_rows(both, call.key_rows).unbind(1)
            if _has_kernel(query):
                parts.append(self._variable_length(query[call.tokens], k, v, call.bounds))
            else:
                parts.append(prefix_attention(query[call.tokens], k, v, call, self.scale))
        tail = query.new_zeros(len(query) - sum(len(part) for part in parts), query[0].numel())
        if not parts:
            tail = tail + both[:0].sum()  # a rank without tokens still takes part in the exchange of gradients
        return torch.cat([*parts, tail])

    def _variable_length(self, query: Tensor, key: Tensor, value: Tensor, bounds: SequenceBounds) -> Tensor:
        return varlen_attention(query, key, value, bounds, self.scale)


def varlen_attention(
    query_TND: Tensor, key_TKD: Tensor, value_TKD: Tensor, bounds: SequenceBounds, scale: float
) -> Tensor:
    """Return attention [T, N · D] by torch's variable-length kernel, causal and aligned at the last key."""
    from torch.nn.attention.varlen import varlen_attn

    shared: dict[str, Any] = {}
    if (repeats := query_TND.shape[1] // key_TKD.shape[1]) > 1:
        if "enable_gqa" in inspect.signature(varlen_attn).parameters:
            shared["enable_gqa"] = True
        else:  # torch 2.11
            key_TKD, value_TKD = (each.repeat_interleave(repeats, 1) for each in (key_TKD, value_TKD))  # noqa: N806  shape suffix
    out = varlen_attn(query_TND, key_TKD, value_TKD, *bounds, scale=scale, window_size=(-1, 0), **shared)
    if not isinstance(out, Tensor):
        raise TypeError("varlen_attn returned more than its output")
    return out.flatten(1)


def _has_kernel(query: Tensor) -> bool:
    """Return whether torch's variable-length kernel supports the tensor."""
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
