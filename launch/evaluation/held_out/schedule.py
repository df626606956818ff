"""Decides which published weights are evaluated during training.  Pure.

The weights of every ``every_steps``-th step are due, except the run's last, which are evaluated after training; a
person may request the newest at any time.  Evaluations run one at a time: what is due or requested while another is
running is skipped and reported.  No step is evaluated twice, unless it was rolled back and trained again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ScheduleDecision(StrEnum):
    NOT_DUE = "not_due"
    """The weights need no evaluation, or have one already."""
    BEGIN = "begin"
    """The evaluation of the weights starts now."""
    OVERLAPS = "overlaps"
    """Another evaluation is running."""


@dataclass(slots=True)
class EvaluationSchedule:
    every_steps: int
    """0 if none is ever due."""
    last_step: int
    evaluated_steps: set[int] = field(default_factory=set[int])
    """Steps whose weights were or are being evaluated."""
    running_step: int | None = None

    def on_published(self, step: int) -> ScheduleDecision:
        """Decide on the weights of ``step``, which were just published."""
        due = self.every_steps and 0 < step < self.last_step and step % self.every_steps == 0
        return self.request(step) if due else ScheduleDecision.NOT_DUE

    def request(self, step: int) -> ScheduleDecision:
        """Decide on the weights of ``step``, which a person wants evaluated."""
        if step in self.evaluated_steps:
            return ScheduleDecision.NOT_DUE
        if self.running_step is not None:
            return ScheduleDecision.OVERLAPS
        self.begin(step)
        return ScheduleDecision.BEGIN

    def begin(self, step: int) -> None:
        """Start, or continue, the evaluation of ``step``."""
        self.evaluated_steps.add(step)
        self.running_step = step

    def finish(self, *, complete: bool) -> None:
        """End the running evaluation; one that is not ``complete`` may be tried again."""
        if not complete and self.running_step is not None:
            self.evaluated_steps.discard(self.running_step)
        self.running_step = None

    def roll_back(self, step: int) -> bool:
        """Forget the steps after ``step``; return whether the running evaluation was one of them and ends."""
        self.evaluated_steps = {each for each in self.evaluated_steps if each <= step}
        if self.running_step is None or self.running_step <= step:
            return False
        self.running_step = None
        return True
