"""Selects tasks of a data set by name: by glob patterns from files, or by ids from the command line.

A pattern is a glob; ``!GLOB`` excludes. An entry of the command line (``fix-git,101-110,200``) is an id; or a number,
which stands for every id that ends with it (``101`` for ``swe-synth-101``); or a range of such numbers, some of which
may be missing, but not all. Pure except for :func:`read_patterns`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")


def filter_dataset(found: Dataset, patterns: Sequence[str]) -> Dataset:
    """Keep the tasks whose names match ``patterns``."""
    return found.filtered(lambda name: matches_patterns(patterns, name))


def matches_patterns(patterns: Sequence[str], name: str) -> bool:
    """Return whether ``name`` matches an including pattern (or there is none) and no excluding one."""
    including = [each for each in patterns if not each.startswith("!")] or ["*"]
    excluding = [each[1:] for each in patterns if each.startswith("!")]
    return any(fnmatch.fnmatchcase(name, each) for each in including) and not any(
        fnmatch.fnmatchcase(name, each) for each in excluding
    )


def unmatched_patterns(found: Dataset, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that match no task, whether usable or not."""
    names = [task.id for task in found.tasks] + [problem.folder.name for problem in found.first_problems]
    return [each for each in patterns if not fnmatch.filter(names, each.removeprefix("!"))]


def read_patterns(patterns: list[str] | str) -> list[str]:
    """Return the patterns, read from the file that ``patterns`` names if it is a path.

    Raises UserError when that file cannot be read.
    """
    if not isinstance(patterns, str):
        return patterns
    try:
        return Path(patterns).read_text("utf-8-sig").split() if patterns else []
    except (OSError, ValueError) as error:
        raise UserError(f"the filter {patterns} is not readable: {error}") from error


def select_tasks(found: Dataset, entries: Sequence[str], source: str) -> Dataset:
    """Keep the tasks that ``entries`` name, in the data set's order; all of them if ``entries`` is empty.

    Raises UserError, which begins with ``source``, for an entry that names no task.  An entry may name an unusable
    task: its problems are kept.
    """
    if not entries:
        return found
    ids = [task.id for task in found.tasks]
    known = [*ids, *(problem.folder.name for problem in found.problems)]
    for entry in entries:
        if not _matching_ids(entry, known):
            raise UserError(f"{source} has no task {entry!r}{_suggestion(entry, ids)}")
    chosen = {name for entry in entries for name in _matching_ids(entry, known)}
    return found.filtered(chosen.__contains__)


def _matching_ids(entry: str, known: Sequence[str]) -> list[str]:
    """Return the known ids that one typed entry stands for."""
    if entry in known:
        return [entry]
    ends = _RANGE.fullmatch(entry)
    if ends is None:
        return []
    first, last = int(ends[1]), int(ends[2] or ends[1])
    return [name for name in known if (number := _NUMBER.search(name)) and first <= int(number[0]) <= last]


def _suggestion(entry: str, ids: Sequence[str]) -> str:
    some = f": they are {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}" if ids else ": it has none"
    return did_you_mean(entry, ids) or some
