"""Compares evaluations of the same tasks, each with the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.evaluation.comparison.compared_evaluation import ComparedEvaluation
from launch.evaluation.comparison.compatibility import comparison_notices, require_comparable
from launch.evaluation.comparison.paired_tasks import PairedTasks, pair_tasks


@dataclass(frozen=True, slots=True)
class PairedEvaluation:
    """One evaluation compared with the first."""

    evaluation: ComparedEvaluation
    paired: PairedTasks
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvaluationComparison:
    first: ComparedEvaluation
    others: tuple[PairedEvaluation, ...]
    notices: tuple[str, ...]
    """Differences that were allowed."""

    @property
    def evaluations(self) -> list[ComparedEvaluation]:
        return [self.first, *(each.evaluation for each in self.others)]


def compare_evaluations(
    sides: Sequence[ComparedEvaluation], *, anyway: bool = False, seed: int = 0
) -> EvaluationComparison:
    """Compare evaluations with the first.  Raises UserError if they cannot be compared."""
    allowed = require_comparable(sides, anyway=anyway)
    first, *rest = sides
    others: list[PairedEvaluation] = []
    for side in rest:
        both = pair_tasks(first.tallies, side.tallies, seed)
        others.append(PairedEvaluation(side, both, tuple(comparison_notices(first, side, both))))
    return EvaluationComparison(first, tuple(others), tuple(allowed))
