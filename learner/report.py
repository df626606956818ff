"""What a step says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from learner.batch import TrainBatch
from learner.flops import peak_flops
from learner.messages import StepReport
from learner.packing import Cost, Sample
from learner.settings import Dtype
from learner.update import Updates
from protocol.trained import TokenRecord
from protocol.trajectory import DropReason


def report(
    step: int, batch: TrainBatch, done: Updates, facts: Mapping[str, float], records: Mapping[str, TokenRecord]
) -> StepReport:
    """Trajectories of which nothing could be trained leave the batch's trained ones, with their reason."""
    lost = {batch.names[origin]: DropReason.NONFINITE for origin in sorted(done.lost)}
    trained = tuple(name for name in batch.trained if name not in lost)
    metrics = batch.metrics | done.metrics | {"updated": float("loss" in done.metrics)} | dict(facts)
    return StepReport(step, trained, batch.dropped | lost, batch.ages, metrics, batch.account, records)


def throughput(samples: Sequence[Sample], seconds: float, cost: Cost, dtype: Dtype, world: int) -> dict[str, float]:
    """``tokens_per_s`` of whole sequences, prompts included; ``mfu``, the share of the devices' dense bfloat16 peak,
    where there is one that is known (see :mod:`learner.flops`)."""
    lengths = [len(sample.token_ids) for sample in samples]
    found = {"tokens_per_s": sum(lengths) / seconds}
    if dtype is Dtype.BFLOAT16 and torch.cuda.is_available():
        peak = peak_flops(torch.cuda.get_device_name())
        if peak is not None:
            found["mfu"] = sum(map(cost, samples)) / (seconds * peak * world)
    return found
