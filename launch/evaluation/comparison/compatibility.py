"""Decides whether evaluations can be compared, and what the reader of a comparison must know.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from launch.evaluation.comparison.compared_evaluation import ComparedEvaluation
from launch.evaluation.comparison.paired_tasks import PairedTasks
from protocol.errors import UserError
from protocol.events import JsonValue

_FEW = 10
"""Number of tasks below which bootstrap intervals are too narrow."""
_NAMED = 3


def require_comparable(sides: Sequence[ComparedEvaluation], *, anyway: bool) -> list[str]:
    """Return the differences that ``anyway`` allowed, one line each.

    Raises UserError if a difference in score could come from the tasks or the sampling instead of the model."""
    first, notices = sides[0], list[str]()
    for other in sides[1:]:
        if not first.tallies.keys() & other.tallies.keys():
            raise UserError(
                f"{first.name} and {other.name} have no task with a verdict in common: evaluate both on the same "
                "--tasks"
            )
        problems = _problems(first, other)
        if problems and not anyway:
            raise UserError(
                f"{first.name} and {other.name} {' and '.join(problems)}: evaluate both alike, or compare tasks of "
                "the same name with --anyway"
            )
        notices += [f"{first.name} and {other.name} {problem}: they are compared --anyway" for problem in problems]
    return notices


def _problems(first: ComparedEvaluation, other: ComparedEvaluation) -> list[str]:
    found: list[str] = []
    if first.spec.tasks_checksum != other.spec.tasks_checksum:
        names = first.spec.tasks, other.spec.tasks
        details = f" ({names[0]}, {names[1]})" if names[0] != names[1] else f" ({names[0]} has changed in between)"
        found.append(f"are of different data sets{details}")
    if first.sampling and other.sampling and first.sampling != other.sampling:
        found.append(f"sampled differently ({first.sampling}, {other.sampling})")
    return found


def comparison_notices(first: ComparedEvaluation, other: ComparedEvaluation, both: PairedTasks) -> list[str]:
    """Return notices about one pair, one line each."""
    notices: list[str] = []
    if other_keys := _differing(first, other):
        more = f" and {len(other_keys) - _NAMED} more keys" if len(other_keys) > _NAMED else ""
        notices.append(f"they differ in {', '.join(other_keys[:_NAMED])}{more}, beside the model")
    notices += [
        f"{side.name} has {side.errors} attempts without a verdict, which do not count: --retry-errors runs them again"
        for side in (first, other)
        if side.errors
    ]
    for side, tasks in ((first, both.only_first), (other, both.only_other)):
        if tasks:
            named = ", ".join(tasks[:_NAMED]) + (" …" if len(tasks) > _NAMED else "")
            notices.append(f"{len(tasks)} tasks have a verdict only in {side.name} and are left out: {named}")
    if len(both.pairs) < _FEW:
        notices.append(f"intervals over {len(both.pairs)} tasks are too narrow: evaluate more tasks")
    return notices


def _differing(first: ComparedEvaluation, other: ComparedEvaluation) -> list[str]:
    keys = sorted(first.spec.recipe.keys() | other.spec.recipe.keys())
    pairs = [(key, first.spec.recipe.get(key), other.spec.recipe.get(key)) for key in keys]
    return [f"{key} ({_short(one)}, {_short(two)})" for key, one, two in pairs if one != two]


def _short(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:19]}…{text[-19:]}"
