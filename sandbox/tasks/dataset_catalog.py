"""``datasets.toml``: the data sets of a project, by label.

    [seta-v1]
    path = "seta-env/Dataset"           # relative to this file
    format = "terminal_bench"           # default: detected from its files
    root = "seta-env"                   # base of the paths in rows (default: the folder of the file of rows)
    filter = ["git-*", "!git-lfs-*"]    # names to include, !names to exclude, KEY=GLOB; or a file of such patterns
    split = {part = "train", held_out = 0.2, seed = 0}
    checksum = "sha256:…"               # of all its tasks, before filter and split

The tasks are ordered by a hash of seed and name, and the first ``held_out`` of them are held out. The catalog of the
data sets that come with longshore is :data:`BUILT_IN_CATALOG`.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from protocol.cli.suggestions import did_you_mean
from protocol.cli.validation_errors import describe_invalid_value
from protocol.errors import UserError
from protocol.files.regular_files import read_regular_file
from sandbox.tasks.dataset import Dataset, dataset_checksum
from sandbox.tasks.dataset_split import DatasetSplit, take_split
from sandbox.tasks.formats.hub import is_hub_name
from sandbox.tasks.formats.registry import format_names, load_tasks
from sandbox.tasks.task_selection import matches_task, read_patterns, unmatched_patterns

CATALOG_FILE = "datasets.toml"
BUILT_IN_CATALOG = Path(__file__).parents[1] / "datasets" / CATALOG_FILE
"""Catalog of the data sets that come with longshore."""


class DatasetEntry(BaseModel):
    """One label's table in a ``datasets.toml``."""

    model_config = ConfigDict(extra="forbid")
    path: Path
    format: str | None = None
    root: Path | None = None
    filter: list[str] | str = Field(default_factory=list[str])
    split: DatasetSplit | None = None
    checksum: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""

    @field_validator("format")
    @classmethod
    def _is_known(cls, name: str | None) -> str | None:
        if name is not None and name not in (known := format_names()):
            raise ValueError(f"there is no format '{name}': choose {', '.join(known)}{did_you_mean(name, known)}")
        return name


_ENTRIES = TypeAdapter(dict[str, DatasetEntry])


def read_catalog(file: Path) -> dict[str, DatasetEntry]:
    """Return the entries by label, with absolute paths. Raises UserError, which names the wrong key."""
    try:
        entries = _ENTRIES.validate_python(tomllib.loads(read_regular_file(file).decode("utf-8-sig")))
    except ValidationError as error:
        wrong = (
            f"{'.'.join(map(str, each['loc']))}: {describe_invalid_value(each)}"
            for each in error.errors(include_url=False)
        )
        raise UserError(f"{file}: {'; '.join(wrong)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not readable TOML: {error}") from error
    here = file.absolute().parent
    return {label: each.model_copy(update=_absolute(each, here)) for label, each in entries.items()}


def _absolute(entry: DatasetEntry, here: Path) -> dict[str, object]:
    listed = str(here / entry.filter) if isinstance(entry.filter, str) and entry.filter else entry.filter
    path = entry.path if is_hub_name(entry.path) else here / entry.path
    return {"path": path, "root": here / entry.root if entry.root else None, "filter": listed}


def load_dataset(tasks: str, catalog: Path, file_format: str | None = None, root: Path | None = None) -> Dataset:
    """Load the data set at the path ``tasks`` if that exists, else the one with this label in ``catalog`` or of ours.

    ``file_format`` and ``root`` are for a path; an entry of a catalog has its own.  Raises UserError.
    """
    path = Path(tasks)
    if path.name == CATALOG_FILE:
        raise UserError(f"{tasks} names data sets by label: give one of the labels, with --datasets {tasks}")
    if path.exists() or is_hub_name(path):
        return load_tasks(path, file_format, root)
    file = _find_catalog(catalog, tasks)
    if file_format or root:
        raise UserError(f"{file} sets format and root of its data sets: remove --format and --root")
    return load_labelled_dataset(file, tasks)


def _find_catalog(catalog: Path, label: str) -> Path:
    """Return the catalog with the label: the project's own, else the built-in one."""
    own, built_in = read_catalog(catalog) if catalog.exists() else None, read_catalog(BUILT_IN_CATALOG)
    if own and label in own:
        return catalog
    if label in built_in:
        return BUILT_IN_CATALOG
    there = f"there is no {catalog}" if own is None else f"{catalog} has {', '.join(own) or 'none'}"
    raise UserError(
        f"{label!r} is not a folder, file or label: {there}, and longshore comes with {', '.join(built_in)}"
        f"{did_you_mean(label, [*(own or ()), *built_in])}: give a path, --datasets FILE, or "
        "hf:ORG/NAME for a data set of the Hugging Face hub"
    )


def load_labelled_dataset(file: Path, label: str) -> Dataset:
    """Load the data set ``label`` of a ``datasets.toml``: its tasks after filter and split, and all of its problems.

    Raises UserError when the label is unknown, the checksum differs, or a pattern of its filter matches no task.
    """
    entries = read_catalog(file)
    if label not in entries:
        raise UserError(f"{file} has no data set {label!r}: choose one of {', '.join(entries) or 'none'}")
    entry = entries[label]
    found = load_tasks(entry.path, entry.format, entry.root)
    if entry.checksum and (checksum := dataset_checksum(found.tasks)) != entry.checksum:
        raise UserError(
            f"data set {label!r} differs from {file}: its tasks have the checksum {checksum}: write that there if "
            "the change is intended"
        )
    patterns = read_patterns(entry.filter)
    has_nameless = found.first_problems and entry.path.is_file()  # a pattern may mean a row that cannot be read
    if not has_nameless and (unmatched := unmatched_patterns(found, patterns)):
        raise UserError(f"{file}: {label}.filter: no task matches {', '.join(map(repr, unmatched))}")
    tasks = tuple(task for task in found.tasks if matches_task(patterns, task))
    return replace(found, tasks=take_split(tasks, entry.split))
