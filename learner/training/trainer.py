"""One optimizer update over samples: distribute, pack, forward and backward through megatron's schedule, Adam."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.data.micro_batches import TrainingSample
from learner.losses import metrics
from learner.losses.metrics import SUM_NAMES, MetricSums
from learner.losses.policy_loss import LossResult
from learner.losses.token_columns import TokenArray, TokenColumns
from learner.models.attention import PackedBatch, micro_batch_to_device
from learner.models.policy_model import PolicyModel, rotary_frequencies, wrap_data_parallel
from learner.models.qwen import QwenConfig
from learner.parallel import megatron_on_cpu
from learner.parallel.layout import ParallelLayout
from learner.parallel.megatron import finalize_model_grads, get_forward_backward_func
from learner.spec import LearnerSpec
from learner.tensors import all_reduce, all_reduce_max, to_numpy
from learner.training.micro_batcher import make_micro_batcher
from learner.training.offload import HostOffload, release_cached_memory
from learner.training.optimizer import LearnerOptimizer

LossFunction = Callable[[Tensor, Tensor, TokenColumns[Tensor]], LossResult]
"""(log-probabilities [N], entropy [N], columns of these tokens) → loss of one micro-batch."""


class TokenResults(NamedTuple):
    """Results of an update for the tokens with loss of one sample, [N] each."""

    logprobs: TokenArray
    """log π under the weights before the update."""
    loss_flags: TokenArray
    """Values of :class:`protocol.run_directory.trained_log.TokenLossFlag`."""


class UpdateResult(NamedTuple):
    sums: MetricSums
    """Sums over the whole batch, on the CPU."""
    grad_norm: float
    """Gradient norm before clipping."""
    updated: bool
    """True if loss and gradient were finite; otherwise weights and Adam's state are unchanged on every rank."""
    token_results: Sequence[TokenResults] = ()
    """Results of each sample, if requested; on every rank."""


class _MicroBatchResult(NamedTuple):
    """Results of one micro-batch."""

    sums: MetricSums
    token_index: Tensor | None
    """[N] indices of its tokens in the batch, if they are numbered."""
    values: Tensor
    """[2, N] log-probabilities and loss flags."""


class MegatronTrainer:
    """Model, gradients and optimizer of one rank.  Each call is a collective with the same samples on all ranks."""

    def __init__(self, model: PolicyModel, config: QwenConfig, spec: LearnerSpec, layout: ParallelLayout) -> None:
        self.model, self.config, self.layout, self.spec = model, config, layout, spec
        self.wrapped: Any = wrap_data_parallel(model, spec.trainer)
        self.optimizer = LearnerOptimizer(self.wrapped, spec.trainer)
        self._host = HostOffload()
        self._packer = make_micro_batcher(config, spec, layout)
        self.cost, self.limits = self._packer.cost, self._packer.limits
        self._frequencies = rotary_frequencies(config, spec.trainer.dtype)
        self._schedule: Any = get_forward_backward_func()
        shape = model.config
        shape.finalize_model_grads_func = _finalize
        shape.no_sync_func = self.wrapped.no_sync
        shape.grad_scale_func = None
        # Pipeline stages exchange tensors by methods that only the function mode intercepts.
        self._mode = megatron_on_cpu.cuda_is_cpu if layout.pp > 1 else contextlib.nullcontext

    def step(
        self,
        samples: Sequence[TrainingSample],
        loss: LossFunction,
        lr: float,
        *,
        entropy: bool,
        return_tokens: bool = False,
    ) -> UpdateResult:
        """Make one update; with ``return_tokens`` the result has values of each token.  Raises BadSampleError for
        samples that do not fit this model or these settings."""
        bounds = _bounds(samples)
        batches = self._make_batches(_numbered(samples, bounds) if return_tokens else samples, entropy=entropy)
        self.wrapped.zero_grad_buffer()
        self.optimizer.zero_grad()
        found: list[_MicroBatchResult] = self._pass(
            batches, partial(_forward, partial(_loss, loss)), forward_only=False
        )
        sums = self._total([each.sums for each in found])
        finite = math.isfinite(float(sums.totals[SUM_NAMES.index("loss")]))
        norm = self.optimizer.step(lr) if finite else math.nan
        seen: Sequence[TokenResults] = ()
        if return_tokens:
            values = [(each.token_index, each.values) for each in found if each.token_index is not None]
            seen = [TokenResults(*rows) for rows in self._gathered(values, bounds, rows=2)]
        return UpdateResult(sums, norm, math.isfinite(norm), seen)

    @torch.no_grad()
    def logprobs(self, samples: Sequence[TrainingSample]) -> list[TokenArray]:
        """Return log π of each sample's tokens with loss under the current weights, on every rank."""
        bounds = _bounds(samples)
        batches = self._make_batches(_numbered(samples, bounds), entropy=False)
        found: list[tuple[Tensor, Tensor]] = self._pass(
            batches, partial(_forward, _forward_only_result), forward_only=True
        )
        return [logprobs for (logprobs,) in self._gathered(found, bounds, rows=1)]

    def _gathered(self, found: Sequence[tuple[Tensor, Tensor]], bounds: Sequence[int], rows: int) -> list[TokenArray]:
        """Return [rows, N] of each sample, on every rank, from each rank's (token indices [n], values [rows, n])."""
        dtype = torch.promote_types(torch.float32, next(self.model.parameters()).dtype)
        every = torch.zeros(rows, bounds[-1], dtype=dtype, device=megatron_on_cpu.rank_device())
        if self.layout.reports_metrics:
            for token_index, values in found:
                every[:, token_index] = values.to(dtype)
        if self.layout.world > 1:
            all_reduce(every)
        return np.split(to_numpy(every), bounds[1:-1], axis=1)

    def _make_batches(self, samples: Sequence[TrainingSample], *, entropy: bool) -> list[PackedBatch]:
        """Return this rank's micro-batches on the device."""
        return [
            micro_batch_to_device(batch, self._frequencies, entropy=entropy, cp_group=self.layout.cp_group)
            for batch in self._packer.make_batches(samples)
        ]

    def _pass(self, batches: Sequence[PackedBatch], forward: Callable[..., object], *, forward_only: bool) -> list[Any]:
        """Return the results of ``forward`` for each micro-batch; empty except on the last stage."""
        self.optimizer.offload()
        with self._mode():
            return self._schedule(
                forward_step_func=forward,
                data_iterator=iter(batches),
                model=[self.wrapped],
                num_microbatches=len(batches),
                seq_length=batches[0].tokens.shape[1],
                micro_batch_size=1,
                forward_only=forward_only,
            )

    def offload(self) -> None:
        """Move weights, gradients and optimizer state to the host until :meth:`reload`."""
        if not self._host.is_offloaded:
            self.optimizer.offload()  # its own offloaded state stays on the host until its update
            gradients = (buffer.grad_data for buffer in self.wrapped.buffers)
            self._host.offload([*self.model.parameters(), *gradients, *self.optimizer.own_tensors()])
            release_cached_memory()

    def reload(self) -> None:
        """Undo :meth:`offload`; does nothing if it was not called."""
        self._host.reload()

    def _total(self, found: Sequence[MetricSums]) -> MetricSums:
        """Sum over micro-batches, then ranks."""
        total = metrics.empty_sums(megatron_on_cpu.rank_device())
        if self.layout.reports_metrics:
            total = functools.reduce(MetricSums.add, found, total)
        if self.layout.world > 1:
            all_reduce(total.totals)
            all_reduce_max(total.largest)
        return MetricSums(total.totals.cpu(), total.largest.cpu())


def _bounds(samples: Sequence[TrainingSample]) -> list[int]:
    """Return the bounds of each sample's tokens with loss among those of all samples."""
    return [0, *itertools.accumulate(len(sample.targets) for sample in samples)]


def _numbered(samples: Sequence[TrainingSample], bounds: Sequence[int]) -> list[TrainingSample]:
    """Return the samples with the index of each token in the batch."""
    return [
        sample.with_columns(index=np.arange(first, first + len(sample.targets)))
        for sample, first in zip(samples, bounds, strict=False)
    ]


def _finalize(models: list[Any], _tokens: Tensor | None, **groups: Any) -> None:
    """Finalize gradients without scaling: loss weights are normalised over the whole batch already."""
    finalize_model_grads(models, None, **groups)


def _forward(
    use: Callable[[Tensor, PackedBatch], tuple[Tensor, object]], batches: Iterator[PackedBatch], model: Any
) -> tuple[Tensor, Callable[..., object]]:
    """Run one micro-batch through the model; ``use`` computes loss and result from its output [2, N]."""
    batch = next(batches)
    output: Tensor = model(batch.tokens, batch.positions, None, labels=batch.labels, packed_seq_params=batch)

    def account(output_2N: Tensor) -> tuple[Tensor, Tensor, object]:  # noqa: N803 - shape suffix
        loss, found = use(output_2N, batch)
        return loss, torch.ones((), dtype=torch.int, device=output_2N.device), found

    return output, account


def _loss(loss: LossFunction, output_2N: Tensor, batch: PackedBatch) -> tuple[Tensor, _MicroBatchResult]:  # noqa: N803 - shape suffix
    result = loss(output_2N[0], output_2N[1], batch.columns)
    logprobs_N = output_2N[0].detach()  # noqa: N806 - shape suffix
    flags_N = torch.zeros_like(logprobs_N) if result.loss_flags is None else result.loss_flags.to(logprobs_N.dtype)  # noqa: N806 - shape suffix
    return result.loss, _MicroBatchResult(result.sums, batch.columns.index, torch.stack([logprobs_N, flags_N]))


def _forward_only_result(output_2N: Tensor, batch: PackedBatch) -> tuple[Tensor, object]:  # noqa: N803 - shape suffix
    """Return no loss, and the token indices with their log-probabilities."""
    return output_2N.new_zeros(()), (batch.columns.index, output_2N[:1])
