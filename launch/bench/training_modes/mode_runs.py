"""Overrides and command lines of the benchmark's runs.  Only the keys of :func:`mode_overrides` differ."""

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
"""Maximum seconds of a command, its delay included; of 5,000 delays (median 3 s, p95 12 s) one is longer, and its
episode runs into its time limit.
"""


def max_in_flight(mode: AdmissionMode) -> int:
    """Return the maximum number of concurrent episodes."""
    return BATCH * (MAX_STALENESS + 1) if mode is AdmissionMode.ASYNC else BATCH


@dataclass(frozen=True, slots=True)
class ModeRun:
    """One run."""

    name: str
    mode: AdmissionMode
    steps: int
    """Number of optimizer steps, including the warm-up."""
    attempts: int
    """Number of evaluation attempts at each held-out task after training; 0 for none."""
    delays: ToolDelays
    start_concurrency: int | None = None
    """Start concurrency; None for the recipe's."""


@dataclass(frozen=True, slots=True)
class ModeBenchmarkSetup:
    """The settings that all runs share."""

    recipe: str
    folder: Path
    seed: int
    overrides: Sequence[str] = field(default=())
    """The user's overrides, which the benchmark's replace."""

    @property
    def runs_folder(self) -> Path:
        return self.folder / "runs"

    def config(self, arm: ModeRun) -> RunConfig:
        """Return the configuration.  Raises UserError."""
        return load_recipe(self.recipe, self.config_overrides(arm))

    def command_line(self, arm: ModeRun) -> list[str]:
        """Return the words of the command line of ``launch.cluster``."""
        sets = [word for value in self.config_overrides(arm) for word in ("--set", value)]
        return [self.recipe, "--run-id", arm.name, *sets]

    def config_overrides(self, arm: ModeRun) -> tuple[str, ...]:
        return (*self._rates(), *self.overrides, *self._common(), *mode_overrides(arm))

    def _rates(self) -> tuple[str, ...]:
        """Return the recipe's learning rates scaled to the smaller batch by the square root of its share."""
        recipe = load_recipe(self.recipe, self.overrides)
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
