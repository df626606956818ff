"""Causal self-attention over packed sequences, on torch's own kernels.

Megatron's local attention refuses packed sequences; this one takes its place.  It applies the rotary embedding itself,
from positions that restart with each sequence.  On CUDA in bfloat16 torch's variable-length kernel takes the packed
tensors as they are; elsewhere each bucket of similar lengths is padded on the right and takes one call: under a causal
mask no token sees the padding after it.

Shapes: ``T`` tokens, ``N`` heads of this rank, ``D`` head size.
"""
# ruff: noqa: N803 - shape suffixes

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from learner.kernels import pad_rows, rotate, take_rows
from learner.megatron import MegatronModule, PackedSeqParams
from learner.packing import Bucket, MicroBatch
from learner.tensors import from_numpy
from learner.tokens import TokenColumns


@dataclass(frozen=True, slots=True, eq=False)
class PaddedCall:
    """One padded attention call over neighbouring sequences."""

    tokens: slice
    shape: tuple[int, int]
    """Sequences, longest length."""
    source: Tensor | None
    """int64 [padded places] Row of each, counted from the bucket's first; None where all lengths are equal."""
    place: Tensor | None
    """int64 [T] Padded place of each row."""


@dataclass(kw_only=True, eq=False)
class PackedBatch(PackedSeqParams):
    """A micro-batch on its device, as megatron hands it from the model's input to attention and output.

    Shapes: ``T`` tokens, ``N`` tokens with loss, ``H`` half the head size."""

    tokens: Tensor
    """int64 [1, T]"""
    positions: Tensor
    """int64 [1, T]"""
    cos: Tensor
    """float32 [T, 1, H]"""
    sin: Tensor
    rows: Tensor
    """int64 [N]; see :class:`learner.packing.MicroBatch`."""
    labels: Tensor
    columns: TokenColumns[Tensor]
    """[N] of each."""
    calls: tuple[PaddedCall, ...]
    entropy: bool
    """Whether the model shall compute it."""


def to_device(batch: MicroBatch, frequencies_H: Tensor, *, entropy: bool) -> PackedBatch:
    """``frequencies_H`` are the rotary embedding's, on the device."""
    place = frequencies_H.device
    positions = from_numpy(batch.positions).to(place)
    angles = positions[:, None].float() * frequencies_H
    lengths = [length for bucket in batch.buckets for length in bucket.lengths]
    bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=place)
    return PackedBatch(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=max(lengths),
        max_seqlen_kv=max(lengths),
        tokens=from_numpy(batch.token_ids).to(place)[None],
        positions=positions[None],
        cos=angles.cos()[:, None],
        sin=angles.sin()[:, None],
        rows=from_numpy(batch.rows).to(place),
        labels=from_numpy(batch.labels).to(place),
        columns=batch.columns.map(lambda column: from_numpy(column).to(place)),
        calls=tuple(_padded(bucket, place) for bucket in batch.buckets),
        entropy=entropy,
    )


def _padded(bucket: Bucket, place: torch.device) -> PaddedCall:
    lengths = np.array(bucket.lengths, dtype=np.int64)
    count, longest = len(lengths), int(lengths.max())
    tokens = slice(bucket.start, bucket.start + int(lengths.sum()))
    if int(lengths.min()) == longest:
        return PaddedCall(tokens, (count, longest), None, None)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    within = np.arange(longest)
    source = starts[:, None] + np.minimum(within, lengths[:, None] - 1)
    real = within < lengths[:, None]
    return PaddedCall(
        tokens,
        (count, longest),
        from_numpy(source.reshape(-1)).to(place),
        from_numpy(np.flatnonzero(real)).to(place),
    )


def padded_attention(query_TND: Tensor, key_TKD: Tensor, value_TKD: Tensor, call: PaddedCall, scale: float) -> Tensor:
    """[T, N · D] for one bucket; ``K`` key heads, each shared by N ÷ K query heads."""
    count, longest = call.shape
    padded = [query_TND, key_TKD, value_TKD]
    if call.source is not None and call.place is not None:
        padded = [pad_rows(x, call.source, call.place) for x in padded]
    q, k, v = (x.reshape(count, longest, *x.shape[1:]).transpose(1, 2) for x in padded)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    flat = out.transpose(1, 2).reshape(count * longest, -1)
    return flat if call.place is None else take_rows(flat, call.place)


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
        """query [T, N, D], key and value [T, K, D] → [T, N · D]."""
        batch = packed_seq_params
        if batch is None or attention_mask is not None:
            raise TypeError("PackedAttention takes a PackedBatch and no mask")
        query, key = rotate(query, batch.cos, batch.sin), rotate(key, batch.cos, batch.sin)
        if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
            return self._variable_length(query, key, value, batch)
        parts = [
            padded_attention(query[call.tokens], key[call.tokens], value[call.tokens], call, self.scale)
            for call in batch.calls
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _variable_length(self, query: Tensor, key: Tensor, value: Tensor, batch: PackedBatch) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        bounds, longest = batch.cu_seqlens_q, batch.max_seqlen_q
        out = varlen_attn(
            query,
            key,
            value,
            bounds,
            bounds,
            longest,
            longest,
            scale=self.scale,
            window_size=(-1, 0),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        if not isinstance(out, Tensor):
            raise TypeError("varlen_attn returned more than its output")
        return out.flatten(1)
