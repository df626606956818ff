"""How many groups may be opened now, and why no more: the conductor's decision, without clock or I/O.

Three bounds, each of them on a number of groups, never on which:

- **Age.** :class:`protocol.staleness.Admission` keeps what is begun within η of the step that will train it.
- **Expected age.** A group that is opened waits for those before it.  Where groups take T seconds from opening to
  closing and a step takes S, T ÷ S batches under way feed the learner, and one more that is ready keeps it fed through
  the spread of T; whatever else is open only grows old.  So the lead is T ÷ S + ``slack`` steps, with η above it.
- **Free capacity.** Tickets leave only to a free sandbox place and below ``in_flight`` (what the engines can hold), and
  a group opens only when a ticket would leave.  Bytes are the journal's to refuse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from actors.scheduler.running_mean import RunningMean
from protocol.staleness import AdmissionLimit, AdmissionMode

DEFAULT_SLACK_STEPS = 1.0
"""Steps' worth of groups that may be ready, beyond those that run."""
_SETTLING_STEPS = 2
"""Batches that have to close before their times are believed: the first to close are the short ones."""


class RolloutFlow(StrEnum):
    """What a person has asked of a run."""

    RUN = "run"
    PAUSE = "pause"
    """No ticket leaves; what runs goes on."""
    DRAIN = "drain"
    """No group opens; those that are open go on to their end."""


class AdmissionHold(StrEnum):
    """Why no further group is opened."""

    NOT_TRAINING = "not_training"
    PAUSED = "paused"
    DRAINING = "draining"
    RUN_COMPLETE = "run_complete"
    """The groups that the remaining steps need are open."""
    AGE = "age"
    """One more would be begun more than η steps before it can be trained."""
    EXPECTED_AGE = "expected_age"
    """One more would only wait: the learner is fed."""
    IN_FLIGHT = "in_flight"
    """As many episodes run as the engines are to hold."""
    BYTES = "bytes"
    """The buffer's byte budget has no room for it."""
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class RolloutTuning:
    """What may be changed while the run goes on."""

    in_flight: int = 0
    """Training episodes at once over all workers; 0 for as many as there are places."""
    max_staleness: float | None = None
    """Most steps that rollout runs ahead, at most η; None for what the run's mode and its times say."""
    slack: float = DEFAULT_SLACK_STEPS
    publish_every: int = 1
    """Steps from one set of weights that the engines get to the next."""

    def __post_init__(self) -> None:
        if self.in_flight < 0 or self.slack < 0 or (self.max_staleness is not None and self.max_staleness < 0):
            raise ValueError(f"in_flight, lead and slack cannot be negative: {self}")


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """What was measured; None where it is not known yet."""

    group_s: float | None = None
    """From a group's opening to its closing, on average."""
    step_s: float | None = None
    """Of one step of a learner that never waits."""


def allowed_staleness(
    admission: AdmissionLimit, tuning: RolloutTuning, times: MeasuredTimes, publish_every: int = 1
) -> float:
    """Steps that rollout may run ahead of the weights in use: never above η, never below what they have to fill until
    the next come, ``publish_every`` steps later."""
    least = publish_every - 1
    if tuning.max_staleness is not None:
        return max(least, min(tuning.max_staleness, admission.max_staleness))
    if admission.mode is not AdmissionMode.ASYNC or not times.group_s or not times.step_s:
        return admission.max_steps_ahead
    return min(admission.max_steps_ahead, least + times.group_s / times.step_s + tuning.slack)


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    groups: int
    """So many may be opened."""
    hold: AdmissionHold | None
    """What forbids the next, where ``groups`` is 0."""
    max_staleness: float


def decide_admission(
    admission: AdmissionLimit,
    tuning: RolloutTuning,
    times: MeasuredTimes,
    *,
    live: int,
    published_step: int,
    total_steps: int,
    publish_every: int = 1,
) -> AdmissionDecision:
    """How many groups may open when ``live`` were opened (dropped ones left out), the engines serve the weights of
    ``published_step``, and the run takes ``total_steps``."""
    lead = allowed_staleness(admission, tuning, times, publish_every)
    expected = math.floor((published_step + 1 + lead) * admission.groups_per_step) - live
    whole_run = total_steps * admission.groups_per_step - live
    groups = max(0, min(expected, whole_run))
    if groups:
        return AdmissionDecision(groups, None, lead)
    if whole_run <= 0:
        return AdmissionDecision(0, AdmissionHold.RUN_COMPLETE, lead)
    return AdmissionDecision(
        0, AdmissionHold.EXPECTED_AGE if lead < admission.max_steps_ahead else AdmissionHold.AGE, lead
    )


@dataclass(slots=True)
class GroupTimes:
    """Running mean of the time that a group takes from opening to closing.

    The first batches tell only of short groups, so nothing is said until two batches have closed; from then on a mean
    that forgets with the same memory."""

    groups_per_step: int
    _times: RunningMean = field(init=False)

    def __post_init__(self) -> None:
        self._times = RunningMean(2 * _SETTLING_STEPS * self.groups_per_step)

    def add(self, seconds: float) -> None:
        self._times.add(seconds)

    @property
    def mean_s(self) -> float | None:
        return self._times.value if self._times.count >= _SETTLING_STEPS * self.groups_per_step else None
