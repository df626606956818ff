"""``datasets.toml``: the data sets of a project, by label.

    [seta-v1]
    path = "seta-env/Dataset"           # relative to this file
    format = "terminal_bench"           # default: what its files look like
    root = "seta-env"                   # what rows' paths are relative to (default: where the rows lie)
    filter = ["git-*", "!git-lfs-*"]    # names to take, !names to leave out; or a file of names
    split = {part = "train", held_out = 0.2, seed = 0}
    checksum = "sha256:…"               # of all its tasks as they are read, before filter and split

The tasks are ordered by a hash of seed and name, and the first ``held_out`` of them are held out.  Those of our own are
in :data:`BUILT_IN`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import tomllib
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.field_encoding import differing_fields
from sandbox.tasks.formats.registry import format_names, load_tasks
from sandbox.tasks.task import Task

CATALOG_FILE = "datasets.toml"
BUILT_IN_CATALOG = Path(__file__).parents[1] / "datasets" / CATALOG_FILE
"""Of the data sets that come with longshore."""


class DatasetPart(StrEnum):
    TRAIN = "train"
    HELD_OUT = "held_out"


class DatasetSplit(BaseModel):
    """Which side of a split."""

    model_config = ConfigDict(extra="forbid")
    part: DatasetPart
    held_out: Annotated[float, Field(ge=0, le=1)] = 0.2
    seed: int = 0


class DatasetEntry(BaseModel):
    """One label."""

    model_config = ConfigDict(extra="forbid")
    path: Path
    format: str | None = None
    root: Path | None = None
    filter: list[str] | str = Field(default_factory=list[str])
    split: DatasetSplit | None = None
    checksum: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""

    @field_validator("format")
    @classmethod
    def _is_there(cls, name: str | None) -> str | None:
        if name is not None and name not in (known := format_names()):
            raise ValueError(f"no format is called '{name}'; they are {', '.join(known)}{did_you_mean(name, known)}")
        return name


_ENTRIES = TypeAdapter(dict[str, DatasetEntry])


def read_catalog(file: Path) -> dict[str, DatasetEntry]:
    """Label → entry, paths absolute.  Raises UserError, which names the key that is wrong."""
    try:
        entries = _ENTRIES.validate_python(tomllib.loads(file.read_text("utf-8-sig")))
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False))
        raise UserError(f"{file}: {'; '.join(wrong)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not readable TOML: {error}") from error
    here = file.absolute().parent
    return {label: each.model_copy(update=_absolute(each, here)) for label, each in entries.items()}


def _absolute(entry: DatasetEntry, here: Path) -> dict[str, object]:
    listed = str(here / entry.filter) if isinstance(entry.filter, str) and entry.filter else entry.filter
    return {"path": here / entry.path, "root": here / entry.root if entry.root else None, "filter": listed}


def load_labelled_dataset(file: Path, label: str) -> Dataset:
    """The tasks of ``label`` in a ``datasets.toml``.  Raises UserError when it is unknown or its data has changed."""
    entries = read_catalog(file)
    if label not in entries:
        lacking = f"{file} has no data set {label!r}" if label else f"{file} has data sets by label: name one, --label"
        raise UserError(f"{lacking}: choose one of {', '.join(entries) or 'none'}")
    entry = entries[label]
    found = load_tasks(entry.path, entry.format, entry.root)
    if entry.checksum and (now := dataset_checksum(found.tasks)) != entry.checksum:
        raise UserError(
            f"data set {label!r} is not what {file} says: its tasks have the checksum {now}: write that there if the "
            "change is wanted"
        )
    patterns = read_patterns(entry.filter)
    nameless = found.first_problems and entry.path.is_file()  # a row that cannot be used may be any pattern's
    if not nameless and (idle := _idle(found, patterns)):
        raise UserError(f"{file}: {label}.filter: no task is named {', '.join(map(repr, idle))}")
    return replace(found, tasks=take_split(filter_tasks(found.tasks, patterns), entry.split))


def _idle(found: Dataset, patterns: list[str]) -> list[str]:
    """The patterns that fit no task."""
    names = [task.id for task in found.tasks] + [problem.folder.name for problem in found.first_problems]
    return [each for each in patterns if not fnmatch.filter(names, each.removeprefix("!"))]


def dataset_checksum(tasks: tuple[Task, ...]) -> str:
    """Of what the tasks are, in any order and any format; equal tasks have equal checksums on every machine."""
    bare = Task("", "")
    texts = (orjson.dumps([task.id, differing_fields(task, bare)], option=orjson.OPT_SORT_KEYS) for task in tasks)
    each = sorted(hashlib.sha256(text).digest() for text in texts)
    return f"sha256:{hashlib.sha256(b''.join(each)).hexdigest()}"


def read_patterns(listed: list[str] | str) -> list[str]:
    """A filter's patterns, or those in the file that it names.  Raises UserError when that cannot be read."""
    if not isinstance(listed, str):
        return listed
    try:
        return Path(listed).read_text("utf-8-sig").split() if listed else []
    except (OSError, ValueError) as error:
        raise UserError(f"the filter {listed} is not readable: {error}") from error


def filter_tasks(tasks: tuple[Task, ...], patterns: list[str]) -> tuple[Task, ...]:
    """The tasks whose names a filter takes."""
    return tuple(task for task in tasks if matches_patterns(patterns, task.id))


def filter_dataset(found: Dataset, patterns: list[str]) -> Dataset:
    """What a filter takes.  Of what cannot be used only a folder has a name: a row may be any pattern's."""
    problems = (
        each for each in found.problems if matches_patterns(patterns, each.folder.name) or not each.folder.is_dir()
    )
    return Dataset(filter_tasks(found.tasks, patterns), tuple(problems))


def matches_patterns(patterns: list[str], name: str) -> bool:
    """Whether globs take a name; ``!GLOB`` leaves out."""
    taken = [each for each in patterns if not each.startswith("!")] or ["*"]
    left = [each[1:] for each in patterns if each.startswith("!")]
    return any(fnmatch.fnmatchcase(name, each) for each in taken) and not any(
        fnmatch.fnmatchcase(name, each) for each in left
    )


def take_split(tasks: tuple[Task, ...], wanted: DatasetSplit | None) -> tuple[Task, ...]:
    """One side of the split, in the order in which the tasks came."""
    if wanted is None:
        return tasks

    def order(task: Task) -> str:
        return hashlib.sha256(f"{wanted.seed}:{task.id}".encode()).hexdigest()

    held = {task.id for task in sorted(tasks, key=order)[: round(len(tasks) * wanted.held_out)]}
    return tuple(task for task in tasks if (task.id in held) is (wanted.part is DatasetPart.HELD_OUT))
