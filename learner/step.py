"""One optimizer step over a batch of samples: share, pack, forward and backward through megatron's schedule, update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from learner import seam
from learner.attention import PackedBatch, to_device
from learner.losses import SUMS, LossResult
from learner.megatron import finalize_model_grads, get_forward_backward_func
from learner.model import PolicyModel, frequencies, wrap
from learner.offload import Parking
from learner.optimizer import Optimizer
from learner.packer import packer
from learner.packing import Sample
from learner.parallel import Layout
from learner.qwen import QwenConfig
from learner.settings import LearnerSettings
from learner.tensors import all_reduce, all_reduce_max

LossFunction = Callable[[Tensor, Tensor, PackedBatch], LossResult]
"""(log-probabilities [N], entropy [N], batch) → loss of one micro-batch."""


class StepResult(NamedTuple):
    sums: Tensor
    """float64 [len(SUMS)], of the whole batch; see :mod:`learner.losses`."""
    mismatch_max: float
    grad_norm: float
    """Before clipping."""


class Trainer:
    """Model, gradients and optimizer of one rank.  All ranks call :meth:`step` with the same samples."""

    def __init__(self, model: PolicyModel, config: QwenConfig, settings: LearnerSettings, layout: Layout) -> None:
        self.model, self.layout, self.settings = model, layout, settings
        self.wrapped: Any = wrap(model, settings)
        self.optimizer = Optimizer(self.wrapped, settings)
        self._parking = Parking()
        self._packer = packer(config, settings, layout)
        self._frequencies = frequencies(config, settings.dtype)
        self._schedule: Any = get_forward_backward_func()
        shape = model.config
        shape.finalize_model_grads_func = _finalize
        shape.no_sync_func = self.wrapped.no_sync
        shape.grad_scale_func = None
        # Stages hand tensors over by methods that only the function mode reaches.
        self._mode = seam.cuda_is_cpu if layout.pp > 1 else contextlib.nullcontext

    def step(self, samples: Sequence[Sample], loss: LossFunction, lr: float, *, entropy: bool) -> StepResult:
        """Raises BadSampleError for samples that do not fit, and FloatingPointError where the gradient is not finite;
        the weights are then as before."""
        batches = [
            to_device(batch, self._frequencies, entropy=entropy, cp_group=self.layout.cp_group)
            for batch in self._packer.batches(samples)
        ]
        self.optimizer.park()
        self.wrapped.zero_grad_buffer()
        self.optimizer.zero()
        with self._mode():
            results: list[LossResult] = self._schedule(
                forward_step_func=partial(_forward, loss),
                data_iterator=iter(batches),
                model=[self.wrapped],
                num_microbatches=len(batches),
                seq_length=batches[0].tokens.shape[1],
                micro_batch_size=1,
                forward_only=False,
            )
        sums, mismatch_max = self._total(results)
        return StepResult(sums, mismatch_max, self.optimizer.step(lr))

    def sleep(self) -> None:
        """Give the device's memory back until :meth:`wake`: weights, gradients and optimizer wait on the host."""
        if not self._parking.parked:
            gradients = (buffer.grad_data for buffer in self.wrapped.buffers)
            self._parking.park([*self.model.parameters(), *gradients, *self.optimizer.own_tensors()])

    def wake(self) -> None:
        """Undo :meth:`sleep`; nothing where that was not called."""
        self._parking.fetch()

    def _total(self, results: Sequence[LossResult]) -> tuple[Tensor, float]:
        """Add up micro-batches, then ranks."""
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=seam.device())
        largest = torch.zeros((), dtype=torch.float64, device=seam.device())
        if self.layout.counts:
            for result in results:
                sums += result.sums
                largest = torch.maximum(largest, result.mismatch_max.double())
        if self.layout.world > 1:
            all_reduce(sums)
            all_reduce_max(largest)
        return sums.cpu(), float(largest)


def _finalize(models: list[Any], _tokens: Tensor | None, **groups: Any) -> None:
    """The loss is divided by the global count of tokens already: no scaling here."""
    finalize_model_grads(models, None, **groups)


def _forward(loss: LossFunction, batches: Iterator[PackedBatch], model: Any) -> tuple[Tensor, Callable[..., object]]:
    batch = next(batches)
    output: Tensor = model(batch.tokens, batch.positions, None, labels=batch.labels, packed_seq_params=batch)

    def account(output_2N: Tensor) -> tuple[Tensor, Tensor, LossResult]:  # noqa: N803 - shape suffix
        result = loss(output_2N[0], output_2N[1], batch)
        return (
            result.loss,
            torch.ones((), dtype=torch.int, device=output_2N.device),
            result._replace(loss=result.loss.detach()),
        )

    return output, account
