"""One rank's micro-batches of a batch of samples, for its place in the layout.  Numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from learner.checks import check_samples
from learner.context import split
from learner.flops import Flops, flops
from learner.packing import MicroBatch, Sample, balance, micro_batches
from learner.qwen import QwenConfig
from learner.settings import LearnerSettings


class Place(Protocol):
    """What counts of a :class:`learner.parallel.Layout` here."""

    @property
    def dp(self) -> int: ...
    @property
    def dp_rank(self) -> int: ...
    @property
    def cp(self) -> int: ...
    @property
    def cp_rank(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Packer:
    flops: Flops
    place: Place
    vocabulary: int
    max_tokens: int
    """Of one rank."""
    multiple: int
    packed: bool

    def batches(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        """This rank's, at least one.  Every rank gets the same samples, so that all raise BadSampleError or none."""
        place, most_tokens = self.place, self.max_tokens * self.place.cp
        check_samples(samples, vocabulary=self.vocabulary, most_tokens=most_tokens)
        share = balance(samples, place.dp, self.cost)[place.dp_rank]
        if place.cp == 1:
            return micro_batches(share, most_tokens, self.cost, self.multiple, packed=self.packed)
        whole = micro_batches(share, most_tokens, self.cost, packed=self.packed)
        return [split(batch, place.cp, place.cp_rank, self.multiple) for batch in whole]

    def cost(self, sample: Sample) -> float:
        """Floating-point operations that training it takes."""
        return self.flops.of(len(sample.token_ids), len(sample.targets))


def packer(config: QwenConfig, settings: LearnerSettings, place: Place) -> Packer:
    return Packer(
        flops=flops(config, frozen=settings.lora is not None),
        place=place,
        vocabulary=config.vocab_size,
        max_tokens=settings.micro_batch_tokens,
        multiple=settings.tp if settings.sequence_parallel else 1,
        packed=settings.packed,
    )
