"""The plan of an evaluation: which attempts at which tasks and, during training, of which weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.evaluation import AttemptId
from protocol.trajectory import GroupId, RolloutRequest
from protocol.weights import WeightVersion


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """``attempts`` sampled and ``greedy`` greedy attempts for each of ``tasks``.

    The same ``seed`` gives the same tasks, requests and sampling seeds under any ``name``.  Only engines with
    ``deterministic`` set sample by those seeds; with others the sampled attempts of two evaluations are independent."""

    name: str
    tasks: tuple[str, ...]
    attempts: int
    greedy: int
    seed: int

    def make_requests(self, run_id: str) -> list[RolloutRequest]:
        """Return the requests: the first attempt at every task, then the second, so an early stop covers each task."""
        size = self.attempts + self.greedy
        return [
            RolloutRequest(
                run_id,
                GroupId(index),
                sample,
                size,
                task,
                AttemptId(task, sample).sampling_seed(self.seed),
                purpose=self.name,
                greedy=sample >= self.attempts,
            )
            for sample in range(size)
            for index, task in enumerate(self.tasks)
        ]


@dataclass(frozen=True, slots=True)
class OnlineEvaluationPlan:
    """An evaluation's plan, the only weight version that may sample it, and the file of its attempts."""

    evaluation: EvaluationPlan
    version: WeightVersion
    """The weights that sample every attempt."""
    attempts_path: Path
    """The file of finished attempts.  An attempt is in it before it counts, so that a restarted scheduler or a resumed
    run continues after those on disk."""
