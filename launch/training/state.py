"""The state of a training loop that its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from launch.control.step_hooks import TrainingEnding
from launch.training.batch_fill import BatchFill
from launch.training.settings import StopSettings
from protocol.staleness import StaleTokenPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """The run's settings that the loop reads; replaced when a person changes one during the run."""

    run_dir: Path
    attempt: int
    steps: int
    groups_per_step: int
    group_size: int
    max_staleness: int
    stale_policy: StaleTokenPolicy
    publish_every: int
    checkpoint_every: int
    stop: StopSettings
    nonfinite_limit: int
    keeps_reference: bool
    """Whether the learner's first weights are kept as the reference of a KL penalty."""


@dataclass(slots=True)
class TrainingState:
    settings: TrainingSettings
    step: int = 0
    """Optimizer steps taken so far."""
    ending: TrainingEnding | None = None
    """Reason that training ended; None while it continues."""
    batch_fill: BatchFill = field(init=False)

    def __post_init__(self) -> None:
        self.restore(0, 0)

    def restore(self, step: int, dropped_trajectories: int) -> None:
        """Go back to a checkpoint of ``step``, before which steps dropped this many trajectories."""
        self.step = step
        self.batch_fill = BatchFill(self.settings.groups_per_step, self.settings.group_size, dropped_trajectories)
