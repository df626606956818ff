"""Report and throughput of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from learner.data.batch import TrainBatch
from learner.data.micro_batches import SampleCost, TrainingSample
from learner.messages import StepReport
from learner.models.flops import device_peak_flops
from learner.settings import Dtype
from learner.training.update import BatchUpdateResult
from protocol.run_directory.trained_log import PackedTrainedTokens
from protocol.trajectory import DropReason


def make_step_report(
    step: int,
    batch: TrainBatch,
    done: BatchUpdateResult,
    measured: Mapping[str, float],
    *,
    records: Mapping[str, PackedTrainedTokens],
    faults: Mapping[str, str],
) -> StepReport:
    """Return the report of a step; trajectories without a finite update move from trained to dropped.  ``faults`` are
    those of trajectories that are not in the batch."""
    lost = {batch.trajectory_ids[origin]: DropReason.NONFINITE for origin in sorted(done.nonfinite_indices)}
    trained = tuple(name for name in batch.trained if name not in lost)
    metrics = batch.metrics | done.metrics | {"updated": float("loss" in done.metrics)} | dict(measured)
    dropped = batch.dropped | lost | dict.fromkeys(faults, DropReason.UNUSABLE)
    histogram, account = batch.staleness_histogram, batch.account
    return StepReport(step, trained, dropped, histogram, metrics, account, records, dict(faults))


def throughput_metrics(
    samples: Sequence[TrainingSample], seconds: float, cost: SampleCost, dtype: Dtype, world: int
) -> dict[str, float]:
    """Return ``tokens_per_s`` of whole sequences, prompts included, and ``mfu``, the share of the devices' dense
    bfloat16 peak if it is known (see :mod:`learner.models.flops`)."""
    lengths = [len(sample.token_ids) for sample in samples]
    found = {"tokens_per_s": sum(lengths) / seconds}
    if dtype is Dtype.BFLOAT16 and torch.cuda.is_available():
        peak = device_peak_flops(torch.cuda.get_device_name())
        if peak is not None:
            found["mfu"] = sum(map(cost, samples)) / (seconds * peak * world)
    return found
