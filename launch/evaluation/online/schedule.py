"""Which published weights are evaluated beside training.  Pure.

Every ``every_steps``-th step's are due, but for the run's last, which are evaluated after training; a person may ask
for the newest at any time.  One evaluation at a time: what is due or asked for while another is under way is passed
over, which is said.  No step's weights are evaluated twice, unless they were rolled back and made again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ScheduleDecision(StrEnum):
    NOT_DUE = "not_due"
    """These need not be evaluated, or are or were already."""
    BEGIN = "begin"
    """The evaluation of these is under way from here on."""
    OVERLAPS = "overlaps"
    """Another is under way."""


@dataclass(slots=True)
class EvaluationSchedule:
    every_steps: int
    """0: none is due."""
    last_step: int
    evaluated_steps: set[int] = field(default_factory=set[int])
    """Steps whose weights were evaluated, or are."""
    running_step: int | None = None

    def on_published(self, step: int) -> ScheduleDecision:
        """The weights of ``step`` can be evaluated."""
        due = self.every_steps and 0 < step < self.last_step and step % self.every_steps == 0
        return self.request(step) if due else ScheduleDecision.NOT_DUE

    def request(self, step: int) -> ScheduleDecision:
        """A person wants those of ``step`` to be."""
        if step in self.evaluated_steps:
            return ScheduleDecision.NOT_DUE
        if self.running_step is not None:
            return ScheduleDecision.OVERLAPS
        self.begin(step)
        return ScheduleDecision.BEGIN

    def begin(self, step: int) -> None:
        """The evaluation of ``step`` is under way, or again."""
        self.evaluated_steps.add(step)
        self.running_step = step

    def finish(self, *, complete: bool) -> None:
        """What was under way has come to its end; what is not ``complete`` may be tried again."""
        if not complete and self.running_step is not None:
            self.evaluated_steps.discard(self.running_step)
        self.running_step = None

    def roll_back(self, step: int) -> bool:
        """The weights after ``step`` are gone.  Whether what was under way is of such, and therefore ends."""
        self.evaluated_steps = {each for each in self.evaluated_steps if each <= step}
        if self.running_step is None or self.running_step <= step:
            return False
        self.running_step = None
        return True
