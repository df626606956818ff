"""Longshore's step, as the learner takes it: from encoded trajectories to updated weights and all metrics."""

from __future__ import annotations

import time

from launch.bench.learner.hugging_face import StepTiming
from launch.bench.learner.metrics_overhead import time_metrics
from launch.bench.learner.workload import LearnerWorkload, encode_batch, initial_lineage
from learner.messages import StepReport
from learner.rank import LearnerRank
from learner.spec import LearnerSpec
from protocol.weights import WeightVersion


class LongshoreStep:
    """A learner of one rank, for any workload of its model's shape."""

    def __init__(self, spec: LearnerSpec) -> None:
        self.spec = spec
        self._rank = LearnerRank(spec)
        self._rank.setup()
        self._payloads: dict[LearnerWorkload, list[bytes]] = {}

    def take_reported_step(self, work: LearnerWorkload) -> StepReport:
        """Take a step and return its metrics."""
        if work not in self._payloads:
            self._payloads[work] = encode_batch(work)
        return self._rank.step(1, self._payloads[work], initial_lineage(), WeightVersion(0))

    def take_step(self, work: LearnerWorkload) -> StepTiming:
        metrics = self.take_reported_step(work).metrics
        return StepTiming(metrics["seconds"], metrics["grad_norm"])

    def measure_metrics_share(self, work: LearnerWorkload) -> float:
        """Return the share of a step's time that only computes reported metrics."""
        with time_metrics() as spent:
            began = time.perf_counter()
            self.take_reported_step(work)
            seconds = time.perf_counter() - began
        return sum(spent.metrics) / (seconds - sum(spent.measuring))
