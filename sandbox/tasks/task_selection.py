"""Selects tasks of a data set: by patterns from files, or by entries from the command line.

A pattern is a glob of names, or ``KEY=GLOB`` of what tasks say about themselves: ``category=…`` (or ``family``),
``difficulty=…``, ``tags=…`` or any other key of their metadata.  ``!PATTERN`` excludes.  A task is selected if it
matches a pattern of each key that patterns have, and no excluding one.

An entry of the command line (``fix-git,101-110,200,difficulty=easy``) is an id; or a number, which stands for every id
that ends with it (``101`` for ``swe-synth-101``); or a range of such numbers, some of which may be missing, but not
all; or ``KEY=GLOB``.  Pure except for :func:`read_patterns`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.files.regular_files import read_regular_file
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.field_encoding import from_metadata_text
from sandbox.tasks.task import Task

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_NAME = ""
"""Key of patterns of names, which have no ``=``."""
_FAMILY = {"category", "family"}


class _Pattern(NamedTuple):
    excludes: bool
    key: str
    glob: str


def _parse(pattern: str) -> _Pattern:
    text = pattern.removeprefix("!")
    key, equals, glob = text.partition("=")
    return _Pattern(text != pattern, key if equals else _NAME, glob if equals else text)


def filter_dataset(found: Dataset, patterns: Sequence[str]) -> Dataset:
    """Keep the tasks that match ``patterns``, and the problems of unusable ones whose names do.

    Raises UserError for a key that no task has."""
    for key in dict.fromkeys(_parse(each).key for each in patterns):
        _require_key(found, key)
    usable = {task.id: matches_task(patterns, task) for task in found.tasks}
    of_names = [each for each in patterns if _parse(each).key == _NAME]
    return found.filtered(lambda name: usable[name] if name in usable else matches_patterns(of_names, name))


def matches_task(patterns: Sequence[str], task: Task) -> bool:
    """Return whether ``task`` matches a pattern of each key, and no excluding one."""
    matched = dict[str, bool]()
    for excludes, key, glob in map(_parse, patterns):
        hit = any(fnmatch.fnmatchcase(value, glob) for value in _values(task, key))
        if excludes and hit:
            return False
        if not excludes:
            matched[key] = matched.get(key, False) or hit
    return all(matched.values())


def _values(task: Task, key: str) -> list[str]:
    """Return what a task says under a key: one text, each item of a list, or nothing."""
    if key == _NAME:
        return [task.id]
    if key in _FAMILY:
        return [task.family] if task.family else []
    if key not in task.metadata:
        return []
    value = from_metadata_text(task.metadata[key])
    return [str(item) for item in (cast("list[object]", value) if isinstance(value, list) else [value])]


def _require_key(found: Dataset, key: str) -> None:
    """Raise UserError if tasks say nothing under ``key``."""
    if key == _NAME or not found.tasks or any(_values(task, key) for task in found.tasks):
        return
    known = sorted({name for task in found.tasks for name in task.metadata} | {"category"})
    raise UserError(f"no task says its {key!r}{did_you_mean(key, known)}: tasks say {', '.join(known)}")


def matches_patterns(patterns: Sequence[str], name: str) -> bool:
    """Return whether ``name`` matches an including pattern of names (or there is none) and no excluding one."""
    including = [each for each in patterns if not each.startswith("!")] or ["*"]
    excluding = [each[1:] for each in patterns if each.startswith("!")]
    return any(fnmatch.fnmatchcase(name, each) for each in including) and not any(
        fnmatch.fnmatchcase(name, each) for each in excluding
    )


def unmatched_patterns(found: Dataset, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that match no task, whether usable or not."""
    names = [problem.folder.name for problem in found.first_problems]
    return [
        each
        for each in patterns
        if not any(matches_task([each.removeprefix("!")], task) for task in found.tasks)
        and not (_parse(each).key == _NAME and fnmatch.filter(names, _parse(each).glob))
    ]


def read_patterns(patterns: list[str] | str) -> list[str]:
    """Return the patterns, read from the file that ``patterns`` names if it is a path.

    Raises UserError when that file cannot be read.
    """
    if not isinstance(patterns, str):
        return patterns
    try:
        return read_regular_file(Path(patterns)).decode("utf-8-sig").split() if patterns else []
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
    chosen = set[str]()
    for entry in entries:
        matching = _matching_ids(entry, known, found)
        if not matching:
            raise UserError(f"{source} has no task {entry!r}{_suggestion(entry, ids)}")
        chosen.update(matching)
    return found.filtered(chosen.__contains__)


def _matching_ids(entry: str, known: Sequence[str], found: Dataset) -> list[str]:
    """Return the known ids that one typed entry stands for.  Raises UserError for a key that no task has."""
    key = _parse(entry).key
    if key != _NAME:
        _require_key(found, key)
        return [task.id for task in found.tasks if matches_task([entry], task)]
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
