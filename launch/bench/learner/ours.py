"""Our own step, as the learner takes it: from encoded trajectories to updated weights and all metrics."""

from __future__ import annotations

import time
from pathlib import Path

from launch.bench.learner.workload import Work, lineage, payload
from learner.rank import LearnerRank
from learner.settings import LearnerSettings
from protocol.weights import Version


class Ours:
    """A learner of one rank on the CPU."""

    def __init__(self, work: Work, folder: Path, *, threads: int, lr: float) -> None:
        settings = LearnerSettings(
            str(folder), device="cpu", threads=threads, lr=lr
        )
        self._rank = LearnerRank(settings)
        self._rank.setup()
        self._payload, self._lineage = payload(work), lineage()

    def step(self) -> float:
        """Seconds of one step."""
        began = time.perf_counter()
        self._rank.step(1, self._payload, self._lineage, Version(0))
        return time.perf_counter() - began
