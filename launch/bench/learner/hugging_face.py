"""The step of other trainers: a transformers model, AdamW and the same clipped loss on the same batch.

Log-probabilities are computed in chunks of the tokens with loss, by longshore's function, so that the arms differ
only in how the model handles lengths; ``whole_logits`` computes all logits at once, to compare memory.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers types little of its models)

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from launch.bench.learner.workload import LearnerWorkload, build_samples
from learner.data.micro_batches import TrainingSample
from learner.models.logprobs import token_logprobs
from learner.tensors import from_numpy

PADDED_ROWS = 8
"""Number of sequences in a padded micro-batch."""


class Batching(StrEnum):
    PADDED = "padded"
    """Batches of 8 in order of arrival, padded to the longest sequence."""
    SORTED = "sorted"
    """Sorted by length, 8 at a time, padded to the longest."""
    PACKED = "packed"
    """Packed without padding; transformers separates the sequences by their positions."""


@dataclass(frozen=True, slots=True)
class StepVariant:
    batching: Batching
    attention: str = "sdpa"
    packed_tokens: int = 0
    """Maximum number of tokens of a packed micro-batch; 0 for one sequence each."""
    whole_logits: bool = False


class StepTiming(NamedTuple):
    seconds: float
    grad_norm: float
    """Gradient norm before clipping, which has to be equal in all arms."""


class HuggingFaceStep:
    """A model and its optimizer, for any kind of batch."""

    def __init__(self, work: LearnerWorkload, folder: Path, *, threads: int, lr: float) -> None:
        torch.set_num_threads(threads)
        self._samples = build_samples(work)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._adam = torch.optim.AdamW(self._model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def take_step(self, way: StepVariant) -> StepTiming:
        self._model.set_attn_implementation(way.attention)
        began = time.perf_counter()
        self._adam.zero_grad(set_to_none=True)
        for rows in _micro_batches(self._samples, way):
            clipped_loss(self._logprobs(rows, way), rows).backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._adam.step()
        return StepTiming(time.perf_counter() - began, float(norm))

    def _logprobs(self, rows: Sequence[TrainingSample], way: StepVariant) -> Tensor:
        """Return the log-probabilities [N] of the tokens with loss, sample after sample."""
        packed = way.batching is Batching.PACKED
        inputs = _packed(rows) if packed else _padded(rows)
        width = 0 if packed else inputs["input_ids"].shape[1]
        starts = np.cumsum([0, *(len(row.token_ids) for row in rows)]) if packed else np.arange(len(rows)) * width
        predicts = from_numpy(np.concatenate([row.targets - 1 + at for row, at in zip(rows, starts, strict=False)]))
        labels = from_numpy(np.concatenate([row.token_ids[row.targets] for row in rows])).long()
        if way.whole_logits:
            logits = self._model(**inputs, use_cache=False).logits
            return logits.flatten(0, 1).log_softmax(-1)[predicts].gather(1, labels[:, None])[:, 0]
        hidden = self._model.model(**inputs, use_cache=False).last_hidden_state.flatten(0, 1)
        return token_logprobs(hidden[predicts], self._model.lm_head.weight, labels).logprobs


def _micro_batches(samples: Sequence[TrainingSample], way: StepVariant) -> list[Sequence[TrainingSample]]:
    if way.batching is Batching.PADDED:
        return [samples[at : at + PADDED_ROWS] for at in range(0, len(samples), PADDED_ROWS)]
    ordered = sorted(samples, key=lambda sample: -len(sample.token_ids))
    if way.batching is Batching.SORTED:
        return [ordered[at : at + PADDED_ROWS] for at in range(0, len(ordered), PADDED_ROWS)]
    bins: list[list[TrainingSample]] = []
    room = 0
    for sample in ordered:
        if len(sample.token_ids) > room:
            bins.append([])
            room = way.packed_tokens
        bins[-1].append(sample)
        room -= len(sample.token_ids)
    return [*bins]


def _padded(rows: Sequence[TrainingSample]) -> dict[str, Tensor]:
    longest = max(len(row.token_ids) for row in rows)
    ids, mask = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), np.int64)
    for at, row in enumerate(rows):
        ids[at, : len(row.token_ids)], mask[at, : len(row.token_ids)] = row.token_ids, 1
    return {"input_ids": from_numpy(ids), "attention_mask": from_numpy(mask)}


def _packed(rows: Sequence[TrainingSample]) -> dict[str, Tensor]:
    ids = np.concatenate([row.token_ids for row in rows]).astype(np.int64)
    positions = np.concatenate([np.arange(len(row.token_ids)) for row in rows])
    return {"input_ids": from_numpy(ids)[None], "position_ids": from_numpy(positions)[None]}


def clipped_loss(logprobs: Tensor, rows: Sequence[TrainingSample]) -> Tensor:
    """Return −Σ weight · min(r · A, clip(r, 0.8, 1.28) · A), at least 3 · A if A < 0: longshore's bounds."""
    behaviour, advantages, weights = (
        from_numpy(np.concatenate([getattr(row.columns, name) for row in rows]))
        for name in ("behaviour", "advantages", "weights")
    )
    ratio = (logprobs - behaviour).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
    return -(weights * torch.where(advantages < 0, torch.maximum(gain, 3 * advantages), gain)).sum()
