"""The plan of an evaluation during training: the weights that it evaluates, and the file that keeps its attempts.

An attempt is on disk before it counts, so a restarted scheduler or a resumed run continues after the attempts on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.scheduler.evaluation import EvaluationPlan
from protocol.weights import WeightVersion


@dataclass(frozen=True, slots=True)
class OnlineEvaluationPlan:
    """An evaluation's plan, the only weight version that may sample it, and the file of its attempts."""

    evaluation: EvaluationPlan
    version: WeightVersion
    """The weights that sample every attempt."""
    attempts_path: Path
    """The file of finished attempts."""
