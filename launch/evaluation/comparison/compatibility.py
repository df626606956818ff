"""Which evaluations can be compared, and what a person has to know who compares them.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from launch.evaluation.comparison.compared_evaluation import ComparedEvaluation
from launch.evaluation.comparison.paired_tasks import PairedTasks
from protocol.errors import UserError
from protocol.events import JsonValue

_FEW = 10
"""Tasks; a bootstrap over fewer finds intervals that are too narrow."""
_NAMED = 3


def require_comparable(sides: Sequence[ComparedEvaluation], *, anyway: bool) -> list[str]:
    """What ``anyway`` has let pass, a line each.  Raises UserError where a difference would be of tasks or of sampling,
    and not of models."""
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
                f"{first.name} and {other.name} {' and '.join(problems)}: evaluate both alike, or compare the tasks of "
                "the same name, --anyway"
            )
        notices += [f"{first.name} and {other.name} {problem}: they are compared --anyway" for problem in problems]
    return notices


def _problems(first: ComparedEvaluation, other: ComparedEvaluation) -> list[str]:
    found: list[str] = []
    if first.data_set != other.data_set:
        names = first.data_name, other.data_name
        of = f" ({names[0]}, {names[1]})" if names[0] != names[1] else f" (what {names[0]} holds has changed)"
        found.append(f"are of other data sets{of}")
    if first.sampling and other.sampling and first.sampling != other.sampling:
        found.append(f"sampled in other ways ({first.sampling}, {other.sampling})")
    return found


def comparison_notices(first: ComparedEvaluation, other: ComparedEvaluation, both: PairedTasks) -> list[str]:
    """A line each."""
    said: list[str] = []
    if other_keys := _differing(first, other):
        more = f" and {len(other_keys) - _NAMED} keys more" if len(other_keys) > _NAMED else ""
        said.append(f"they differ in {', '.join(other_keys[:_NAMED])}{more}, beside the model")
    said += [
        f"{side.name} has {side.errors} attempts without a verdict, which are not counted: --retry-errors tries them "
        "again"
        for side in (first, other)
        if side.errors
    ]
    for side, tasks in ((first, both.only_first), (other, both.only_other)):
        if tasks:
            named = ", ".join(tasks[:_NAMED]) + (" …" if len(tasks) > _NAMED else "")
            said.append(f"{len(tasks)} tasks have a verdict in {side.name} alone, and are left out: {named}")
    if len(both.pairs) < _FEW:
        said.append(f"of {len(both.pairs)} tasks, intervals are too narrow: evaluate more")
    return said


def _differing(first: ComparedEvaluation, other: ComparedEvaluation) -> list[str]:
    keys = sorted(first.score_settings.keys() | other.score_settings.keys())
    pairs = [(key, first.score_settings.get(key), other.score_settings.get(key)) for key in keys]
    return [f"{key} ({_short(one)}, {_short(two)})" for key, one, two in pairs if one != two]


def _short(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:19]}…{text[-19:]}"
