"""Micro-batches of one rank from a batch of samples.  Numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from learner.data.context_parallel import split_micro_batch
from learner.data.micro_batches import MicroBatch, TrainingSample
from learner.data.packing import balance_samples, make_micro_batches
from learner.data.sample_checks import check_samples
from learner.models.flops import TrainingFlops, count_training_flops
from learner.models.qwen import QwenConfig
from learner.spec import LearnerSpec
from protocol.usability import TrajectoryLimits


class DataParallelLayout(Protocol):
    """The part of :class:`learner.parallel.layout.ParallelLayout` that batching needs."""

    @property
    def dp(self) -> int: ...
    @property
    def dp_rank(self) -> int: ...
    @property
    def cp(self) -> int: ...
    @property
    def cp_rank(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MicroBatcher:
    flops: TrainingFlops
    layout: DataParallelLayout
    vocabulary: int
    max_tokens: int
    """Most tokens of one rank's micro-batch."""
    multiple: int

    @property
    def limits(self) -> TrajectoryLimits:
        return TrajectoryLimits(self.vocabulary, self.max_tokens * self.layout.cp)

    def make_batches(self, samples: Sequence[TrainingSample]) -> list[MicroBatch]:
        """Return this rank's micro-batches, at least one.  Every rank gets the same samples, so that all raise
        BadSampleError or none."""
        layout, most_tokens = self.layout, self.limits.longest_sequence
        check_samples(samples, vocabulary=self.vocabulary, most_tokens=most_tokens)
        share = balance_samples(samples, layout.dp, self.cost)[layout.dp_rank]
        if layout.cp == 1:
            return make_micro_batches(share, most_tokens, self.cost, self.multiple)
        whole = make_micro_batches(share, most_tokens, self.cost)
        return [split_micro_batch(batch, layout.cp, layout.cp_rank, self.multiple) for batch in whole]

    def cost(self, sample: TrainingSample) -> float:
        """Return the floating-point operations of training a sample."""
        return self.flops.count_sequence(len(sample.token_ids), len(sample.targets))


def make_micro_batcher(config: QwenConfig, spec: LearnerSpec, layout: DataParallelLayout) -> MicroBatcher:
    return MicroBatcher(
        flops=count_training_flops(config, frozen=spec.lora.enabled),
        layout=layout,
        vocabulary=config.vocab_size,
        max_tokens=spec.trainer.micro_batch_tokens,
        multiple=spec.trainer.tp if spec.trainer.sequence_parallel else 1,
    )
