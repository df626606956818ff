"""Our own step, as the learner takes it: from encoded trajectories to updated weights and all metrics."""

from __future__ import annotations

import time

from launch.bench.learner.hugging_face import Step
from launch.bench.learner.metrics import counted
from launch.bench.learner.workload import Work, lineage, payload
from learner.messages import StepReport
from learner.rank import LearnerRank
from learner.settings import LearnerSettings
from protocol.weights import Version


class Ours:
    """A learner of one rank, for any work of its model's shape."""

    def __init__(self, settings: LearnerSettings) -> None:
        self.settings = settings
        self._rank = LearnerRank(settings)
        self._rank.setup()
        self._payloads: dict[Work, list[bytes]] = {}

    def report(self, work: Work) -> StepReport:
        """What one step says of itself."""
        if work not in self._payloads:
            self._payloads[work] = payload(work)
        return self._rank.step(1, self._payloads[work], lineage(), Version(0))

    def step(self, work: Work) -> Step:
        metrics = self.report(work).metrics
        return Step(metrics["seconds"], metrics["grad_norm"])

    def metrics_share(self, work: Work) -> float:
        """Share of one step's time that goes into numbers that are only reported."""
        with counted() as spent:
            began = time.perf_counter()
            self.report(work)
            seconds = time.perf_counter() - began
        return sum(spent.metrics) / (seconds - sum(spent.measuring))
