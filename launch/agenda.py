"""Which published weights are evaluated beside training.  Pure.

Every ``every_steps``-th step's are due, but for the run's last, which are evaluated after training; a person may ask
for the newest at any time.  One evaluation at a time: what is due or asked for while another is under way is passed
over, which is said.  No step's weights are evaluated twice, unless they were rolled back and made again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

EXAMINER, EXAM_ENGINE = "examiner", "engine-exam"
"""Who does it: a worker, and its engine."""


class Verdict(StrEnum):
    NOT_DUE = "not_due"
    """These need not be evaluated, or are or were already."""
    BEGIN = "begin"
    """The evaluation of these is under way from here on."""
    OVERLAPS = "overlaps"
    """Another is under way."""


@dataclass(slots=True)
class Agenda:
    every_steps: int
    """0: none is due."""
    last_step: int
    held: set[int] = field(default_factory=set[int])
    """Steps whose weights were evaluated, or are."""
    under_way: int | None = None

    def published(self, step: int) -> Verdict:
        """The weights of ``step`` can be evaluated."""
        due = self.every_steps and 0 < step < self.last_step and step % self.every_steps == 0
        return self.asked(step) if due else Verdict.NOT_DUE

    def asked(self, step: int) -> Verdict:
        """A person wants those of ``step`` to be."""
        if step in self.held:
            return Verdict.NOT_DUE
        if self.under_way is not None:
            return Verdict.OVERLAPS
        self.begin(step)
        return Verdict.BEGIN

    def begin(self, step: int) -> None:
        """The evaluation of ``step`` is under way, or again."""
        self.held.add(step)
        self.under_way = step

    def ended(self, *, complete: bool) -> None:
        """What was under way has come to its end; what is not ``complete`` may be tried again."""
        if not complete and self.under_way is not None:
            self.held.discard(self.under_way)
        self.under_way = None

    def rolled_back(self, step: int) -> bool:
        """The weights after ``step`` are gone.  Whether what was under way is of such, and therefore ends."""
        self.held = {each for each in self.held if each <= step}
        if self.under_way is None or self.under_way <= step:
            return False
        self.under_way = None
        return True
