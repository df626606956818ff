"""The state of a training loop that its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from launch.config import RunConfig
from launch.control.step_hooks import StopReason
from launch.training.batch_fill import BatchFill


@dataclass(slots=True)
class TrainingState:
    """The state that the parts of a training loop share: configuration, step, and the reason why training ended."""

    config: RunConfig
    """The configuration; it is replaced when a person changes a key during the run."""
    run_dir: Path
    start_number: int
    step: int = 0
    """Optimizer steps taken so far."""
    stop_reason: StopReason | None = None
    """Reason that training ended; None while it continues."""
    batch_fill: BatchFill = field(init=False)

    def __post_init__(self) -> None:
        self.restore(0, 0)

    def restore(self, step: int, dropped_trajectories: int) -> None:
        """Go back to a checkpoint of ``step``, before which steps dropped this many trajectories."""
        rollout = self.config.rollout
        self.step = step
        self.batch_fill = BatchFill(rollout.groups_per_step, rollout.group_size, dropped_trajectories)
