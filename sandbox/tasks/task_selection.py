"""Tasks by their ids, as a person lists them: ``fix-git,101-110,200``.

An id names its task.  A number stands for the ids that end with it, whatever is before it (``101`` for
``swe-synth-101``), and a range for those of all its numbers, of which some may be missing, but not all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")


def select_tasks(found: Dataset, wanted: Sequence[str], source: str) -> Dataset:
    """The tasks of ``found`` that ``wanted`` names, in their order; all where it is empty.

    Raises UserError, which begins with ``source``, for an entry that names none.  One that names only a task that
    cannot be used is no error: that task stays among the problems, as does a row's, which has no name.
    """
    if not wanted:
        return found
    ids = [task.id for task in found.tasks]
    broken = [problem.folder.name for problem in found.problems]
    for entry in wanted:
        if not any(_matching_ids(entry, [*ids, *broken])):
            raise UserError(f"{source} has no task {entry!r}{_suggestion(entry, ids)}")
    chosen = {name for entry in wanted for name in _matching_ids(entry, [*ids, *broken])}
    tasks = tuple(task for task in found.tasks if task.id in chosen)
    problems = (each for each in found.problems if each.folder.name in chosen or not each.folder.is_dir())
    return Dataset(tasks, tuple(problems))


def _matching_ids(entry: str, known: Iterable[str]) -> list[str]:
    """Those of ``known`` that an entry stands for."""
    known = list(known)
    if entry in known:
        return [entry]
    ends = _RANGE.fullmatch(entry)
    if ends is None:
        return []
    first, last = int(ends[1]), int(ends[2] or ends[1])
    return [name for name in known if (number := _NUMBER.search(name)) and first <= int(number[0]) <= last]


def _suggestion(entry: str, known: Sequence[str]) -> str:
    some = f": they are {', '.join(known[:3])}{' …' if len(known) > 3 else ''}" if known else ": it has none"
    return did_you_mean(entry, known) or some
