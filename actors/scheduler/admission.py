"""Admission: how many groups may be opened now, and what forbids more.  Pure.

Three bounds, each on the number of groups, never on which groups:

- **Staleness.** :class:`protocol.staleness.AdmissionLimit` opens no group more than ``max_steps_ahead`` steps before
  the step that trains it.
- **Expected staleness.** Each opened group waits for the groups before it.  If groups take T seconds from opening to
  closing and a step takes S seconds, then T ÷ S running batches feed the learner, and one more ready batch covers the
  spread of T; further batches only become stale.  So rollout runs T ÷ S + ``slack`` steps ahead, at most
  ``max_steps_ahead``.
- **Free capacity.** Requests leave only to a free slot and below ``in_flight`` (the engines' capacity), and a group
  opens only if a request would leave.  The journal enforces the byte budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from actors.scheduler.running_mean import RunningMean
from protocol.staleness import AdmissionLimit, AdmissionMode

_SETTLING_STEPS = 2
"""Number of batches that must close before their times are used, because the first to close are the short ones."""


class RolloutFlow(StrEnum):
    """A person's control over the flow of rollouts."""

    RUN = "run"
    """Open groups and hand out requests."""
    PAUSE = "pause"
    """No request leaves; running episodes continue."""
    DRAIN = "drain"
    """No group opens; open groups continue to their end."""


class AdmissionHold(StrEnum):
    """The reason that no further group is opened."""

    NOT_TRAINING = "not_training"
    PAUSED = "paused"
    DRAINING = "draining"
    RUN_COMPLETE = "run_complete"
    """All groups that the remaining steps need are open."""
    STALENESS = "staleness"
    """Another group would open more than ``max_steps_ahead`` steps before it can be trained."""
    EXPECTED_STALENESS = "expected_staleness"
    """The learner has enough groups; another would only become stale."""
    IN_FLIGHT = "in_flight"
    """The limit of running episodes is reached."""
    BYTES = "bytes"
    """The buffer's byte budget has no room."""
    DISK = "disk"
    IMAGES = "images"
    """The tasks whose turn it is have no image yet."""


@dataclass(frozen=True, slots=True)
class RolloutTuning:
    """Values that may be changed during the run."""

    in_flight: int
    """Maximum number of training episodes at once over all workers; 0 for no limit but their slots."""
    max_steps_ahead: float | None
    """Maximum number of steps that rollout runs ahead, at most the run's own bound; None derives it from the mode and
    the measured times."""
    slack: float
    """Steps' worth of groups that may be ready beyond the running ones."""
    publish_every: int
    """Number of optimizer steps between two weight versions that the engines get."""

    def __post_init__(self) -> None:
        if self.in_flight < 0 or self.slack < 0 or (self.max_steps_ahead is not None and self.max_steps_ahead < 0):
            raise ValueError(f"in_flight, max_steps_ahead and slack cannot be negative: {self}")


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Measured times; None if one is not known yet."""

    group_s: float | None = None
    """Mean seconds from a group's opening to its closing."""
    step_s: float | None = None
    """Seconds of one step, without waiting."""


def allowed_steps_ahead(admission: AdmissionLimit, tuning: RolloutTuning, times: MeasuredTimes) -> float:
    """Return how many steps rollout may run ahead of the weights in use.

    Never above the admission limit, and never too few to fill the steps until the next weights."""
    least = tuning.publish_every - 1
    if tuning.max_steps_ahead is not None:
        return max(least, min(tuning.max_steps_ahead, admission.max_staleness))
    if admission.mode is not AdmissionMode.ASYNC or not times.group_s or not times.step_s:
        return admission.max_steps_ahead
    return min(admission.max_steps_ahead, least + times.group_s / times.step_s + tuning.slack)


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """The result of :func:`decide_admission`."""

    groups: int
    """Number of groups that may be opened."""
    hold: AdmissionHold | None
    """The reason that no group may be opened; None if ``groups`` is above 0."""
    max_steps_ahead: float


def decide_admission(
    admission: AdmissionLimit,
    tuning: RolloutTuning,
    times: MeasuredTimes,
    *,
    live: int,
    served_step: int,
    total_steps: int,
) -> AdmissionDecision:
    """Decide how many groups may open.

    ``live`` groups were opened, dropped ones excluded; the engines serve the weights of ``served_step``, and the run
    takes ``total_steps``."""
    steps_ahead = allowed_steps_ahead(admission, tuning, times)
    expected = math.floor((served_step + 1 + steps_ahead) * admission.groups_per_step) - live
    whole_run = total_steps * admission.groups_per_step - live
    groups = max(0, min(expected, whole_run))
    if groups:
        return AdmissionDecision(groups, None, steps_ahead)
    if whole_run <= 0:
        return AdmissionDecision(0, AdmissionHold.RUN_COMPLETE, steps_ahead)
    return AdmissionDecision(
        0,
        AdmissionHold.EXPECTED_STALENESS if steps_ahead < admission.max_steps_ahead else AdmissionHold.STALENESS,
        steps_ahead,
    )


@dataclass(slots=True)
class GroupTimes:
    """Running mean of the time that a group takes from opening to closing.

    The first batches contain only short groups, so there is no mean until two batches have closed; from then on the
    mean forgets old groups."""

    groups_per_step: int
    _times: RunningMean = field(init=False)

    def __post_init__(self) -> None:
        self._times = RunningMean(2 * _SETTLING_STEPS * self.groups_per_step)

    def add(self, seconds: float) -> None:
        """Add the time of one group."""
        self._times.add(seconds)

    @property
    def mean_s(self) -> float | None:
        """The mean; None before enough groups have closed."""
        return self._times.value if self._times.count >= _SETTLING_STEPS * self.groups_per_step else None
