"""What the runs of the bench are told beside their recipe.  All of an arm's keys but those of :func:`arm_values` are
every arm's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.bench.training_modes.tool_delays import ToolDelays
from launch.config import RunConfig, load_recipe
from protocol.staleness import AdmissionMode

GROUPS, GROUP_SIZE, MAX_STALENESS = 4, 8, 2
BATCH = GROUPS * GROUP_SIZE
MODES = (AdmissionMode.ASYNC, AdmissionMode.SYNC, AdmissionMode.ONE_STEP_OFF)
COMMAND_TIMEOUT_S = 60.0
"""Most that a command may take, its wait included: one of 5,000 waits of median 3 s and p95 12 s is longer, and its
episode runs out of its time as any other would."""


def max_in_flight(mode: AdmissionMode) -> int:
    """Most episodes at once."""
    return BATCH * (MAX_STALENESS + 1) if mode is AdmissionMode.ASYNC else BATCH


@dataclass(frozen=True, slots=True)
class ModeRun:
    """One run."""

    name: str
    mode: AdmissionMode
    steps: int
    """Optimizer steps, those of the warm-up included."""
    attempts: int
    """Evaluation attempts at each held-out task after training; 0 for none."""
    delays: ToolDelays
    start_concurrency: int | None = None
    """Containers that start at once; None for as many as the recipe says."""


@dataclass(frozen=True, slots=True)
class ModeBenchmarkSetup:
    """What all runs have in common."""

    recipe: str
    folder: Path
    seed: int
    overrides: Sequence[str] = field(default=())
    """A person's own, which give way to the bench's."""

    @property
    def runs_folder(self) -> Path:
        return self.folder / "runs"

    def config(self, arm: ModeRun) -> RunConfig:
        """Raises UserError."""
        return load_recipe(self.recipe, self.config_overrides(arm))

    def command_line(self, arm: ModeRun) -> list[str]:
        """Of the command line of ``launch.cluster``."""
        sets = [word for value in self.config_overrides(arm) for word in ("--set", value)]
        return [self.recipe, "--run-id", arm.name, *sets]

    def config_overrides(self, arm: ModeRun) -> tuple[str, ...]:
        return (*self._rates(), *self.overrides, *self._common(), *mode_overrides(arm))

    def _rates(self) -> tuple[str, ...]:
        """The recipe's learning rates for the smaller batch: Adam's steps shrink by the root of its share."""
        recipe = load_recipe(self.recipe)
        shrink = math.sqrt(min(1.0, BATCH / recipe.rollout.episodes_per_step))
        rates = {"lr": recipe.learner.lr, "lr_end": recipe.learner.lr_end}
        return tuple(f"learner.{key}={rate * shrink:.3g}" for key, rate in rates.items() if rate is not None)

    def _common(self) -> tuple[str, ...]:
        places = max(max_in_flight(mode) for mode in MODES)
        return (
            f"run.dir='{self.runs_folder}'",
            f"run.seed={self.seed}",
            f"rollout.groups_per_step={GROUPS}",
            f"rollout.group_size={GROUP_SIZE}",
            f"staleness.max_staleness={MAX_STALENESS}",
            "learner.publish_every=1",
            "rollout.workers_per_node=1",
            f"rollout.episodes_per_worker={places}",
            f"sandbox.capacity_per_node={places}",
            f"sandbox.command_timeout_s={COMMAND_TIMEOUT_S}",
            "evaluation.before_training=false",
            "evaluation.greedy_attempts=0",
            "stop.after_trajectories=0",
            "monitor.enabled=false",
        )


def mode_overrides(arm: ModeRun) -> tuple[str, ...]:
    evaluation = f"evaluation.attempts={arm.attempts}" if arm.attempts else "evaluation.tasks_per_family=0"
    starts = () if arm.start_concurrency is None else (f"sandbox.start_concurrency={arm.start_concurrency}",)
    return (
        f"run.mode='{arm.mode.value}'",
        f"run.steps={arm.steps}",
        f"rollout.in_flight={max_in_flight(arm.mode)}",
        evaluation,
        *starts,
    )
