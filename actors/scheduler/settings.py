"""The scheduler's settings: its part of ``[rollout]`` and ``[data]``, and the spec and state of one run.

Imports nothing heavy, because the configuration imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from actors.scheduler.admission import RolloutFlow, RolloutTuning
from actors.scheduler.curriculum import TaskOrder
from protocol.settings import ConfigSection, CountInt, PositiveInt
from protocol.staleness import AdmissionLimit


class CurriculumSettings(ConfigSection):
    """The order in which tasks are trained."""

    order: TaskOrder = TaskOrder.LISTED
    """Order of tasks in each epoch: ``listed``, ``shuffled``, or ``frontier`` (tasks whose pass rate is nearest to one
    half come first)."""


class SchedulerSettings(ConfigSection):
    """Groups, admission and the replacement of failed episodes."""

    groups_per_step: PositiveInt = 16
    """Number of groups in one optimizer step."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Number of episodes in a group: attempts at the same task whose rewards are compared."""
    dynamic_sampling: bool = True
    """Drop groups whose rewards are all equal and replace them by groups of other tasks (DAPO)."""
    in_flight: CountInt = 0
    """Maximum number of episodes at once over all workers; 0 means as many as the engines decode together
    (``engine.count`` × ``engine.max_running``)."""
    max_steps_ahead: Annotated[float, Field(ge=0)] | None = None
    """Maximum number of optimizer steps that rollout runs ahead of the weights in use, at most
    ``staleness.max_staleness``.  By default it follows from ``run.mode`` and, in mode ``async``, the measured times of
    groups and steps."""
    slack: Annotated[float, Field(ge=0)] = 1.0
    """Steps' worth of groups that may be ready beyond the running ones, if those times determine the limit."""
    replacement_limit: CountInt = 3
    """Maximum number of times that an episode lost by infrastructure is started again.  After that a training sample is
    abandoned, and an evaluation ends the run; if the task's own image, setup or service fails, the evaluation continues
    without it."""

    @property
    def episodes_per_step(self) -> int:
        """Number of episodes in one optimizer step."""
        return self.groups_per_step * self.group_size

    def tuning(self, *, publish_every: int) -> RolloutTuning:
        """Return the values that may be changed during the run."""
        return RolloutTuning(self.in_flight, self.max_steps_ahead, self.slack, publish_every)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSpec:
    """Everything that the scheduler of one run is configured with."""

    run_id: str
    run_dir: Path
    node: str
    tasks: tuple[str, ...]
    """Ids of the training tasks, in the data set's order."""
    settings: SchedulerSettings
    admission: AdmissionLimit
    tuning: RolloutTuning
    """The tuning that the run starts with."""
    total_steps: int
    request_deadline_s: float
    """Seconds after its assignment until a request counts as lost; above the episode's own deadline."""
    seed: int
    order: TaskOrder


@dataclass(frozen=True, slots=True)
class SchedulerRunState:
    """The state of the run, which the driver reports repeatedly so that a restarted scheduler learns it."""

    training: bool = False
    """Whether groups may be opened."""
    served_step: int = 0
    """The step of the weights that every engine serves."""
    step_s: float | None = None
    """Seconds of a learner step, waiting excluded; None before the first."""
    dropped_groups: int = 0
    """Number of groups' worth of trajectories that steps dropped as stale and leased others for."""
    flow: RolloutFlow = RolloutFlow.RUN
    tuning: RolloutTuning | None = None
    """The tuning that a person has set; None for the one that the run started with."""


class FailedRequestOutcome(StrEnum):
    """The outcome for a training request that infrastructure failed."""

    REISSUED = "reissued"
    """The sample is attempted again."""
    SETTLED = "settled"
    """Another attempt has delivered the sample, or its group has closed without it."""
    ABANDONED = "abandoned"
    """The last replacement failed; the journal must record it."""
