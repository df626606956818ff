"""All formats by name: which one a path is in, reading it, writing it.

A package adds one as an entry point of the group ``longshore.task_formats``: a :class:`FolderFormat`,
:class:`RowFormat` or :class:`PointerFormat`.  It is never guessed, only asked for by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import chain
from pathlib import Path

from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin, plugin_names
from sandbox.tasks import code, generated, harbor, miles, openclaw, swe_synth, terminal_bench
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.folders import FolderFormat, load
from sandbox.tasks.rows import PointerFormat, Row, RowFormat, load_rows, read_rows
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.writing import plan


class Format(StrEnum):
    """How tasks are written."""

    TERMINAL_BENCH = "terminal_bench"
    """A folder of Terminal-Bench 1 directories, or one of them."""
    HARBOR = "harbor"
    """A folder of Harbor directories, or one of them."""
    OPENCLAW = "openclaw"
    """JSON Lines that point at task folders, the instruction in ``task``."""
    OPENCLAW_MESSAGES = "openclaw_messages"
    """The same with messages in ``task``."""
    MILES = "miles"
    """JSON Lines that point at Harbor folders."""
    SWE_SYNTH = "swe_synth"
    """JSON or JSON Lines of SWE-SYNTH samples."""
    CODE = "code"
    """JSON Lines with a prompt and ground-truth tests."""
    GENERATED = "generated"
    """JSON Lines that name generated tasks."""


FOLDERS: dict[Format, FolderFormat] = {
    Format.TERMINAL_BENCH: terminal_bench.FORMAT,
    Format.HARBOR: harbor.FORMAT,
}
ROWS: dict[Format, RowFormat | PointerFormat] = {
    Format.OPENCLAW: openclaw.FORMAT,
    Format.OPENCLAW_MESSAGES: openclaw.MESSAGES,
    Format.MILES: miles.FORMAT,
    Format.SWE_SYNTH: swe_synth.FORMAT,
    Format.CODE: code.FORMAT,
    Format.GENERATED: generated.FORMAT,
}


def format_names() -> list[str]:
    """All that there are."""
    return [*(each.value for each in Format), *plugin_names(PluginGroup.TASK_FORMATS)]


def format_of(name: str) -> FolderFormat | RowFormat | PointerFormat:
    """Raises UserError for one that is not there, or that a package adds and is none."""
    if name in list(Format):
        return (FOLDERS | ROWS)[Format(name)]
    found = load_plugin(PluginGroup.TASK_FORMATS, name)
    if not isinstance(found, FolderFormat | RowFormat | PointerFormat):
        raise UserError(
            f"the task format '{name}' is none: its entry point has to be a FolderFormat, a RowFormat or a "
            "PointerFormat (docs/plugins.md)"
        )
    return found


def load_tasks(path: Path, form: str | None = None, root: Path | None = None) -> Dataset:
    """The tasks at ``path``, a data set or a single task folder.

    ``root``: what rows' paths are relative to (default: their file's folder).  Raises TaskError when there is nothing
    to read there, or no telling in which format, UserError for a format that is not there.
    """
    if not path.exists():
        raise TaskError(
            path, "is missing", "name a folder of task folders or a file of rows, in a run by --set data.path=PATH"
        )
    name = form or detect(path)
    found = format_of(name)
    if not isinstance(found, FolderFormat):
        if path.is_dir():
            raise TaskError(path, "is a folder", f"a data set in the format {name} is a file")
        return load_rows(found, path, root)
    if (path / found.marker).exists():
        return Dataset.of([(path, load(found, path))])
    return Dataset.of_folders(found, path)


def detect(path: Path) -> Format:
    """The format of ``path``.  Raises TaskError when nothing tells."""
    if path.is_dir():
        for folder in chain([path], (each for each in sorted(path.iterdir()) if each.is_dir())):
            for form, folder_format in FOLDERS.items():
                if (folder / folder_format.marker).exists():
                    return form
        return Format.TERMINAL_BENCH
    for _, row in read_rows(path):
        if not isinstance(row, TaskError) and (form := _row_format(row)):
            return form
    raise TaskError(path, "has no row in a known format", f"say --format: {', '.join(ROWS)}")


def _row_format(row: Row) -> Format | None:
    keys = set(row)
    wanted: dict[Format, set[str]] = {
        Format.OPENCLAW_MESSAGES: {"task", "metadata"},
        Format.OPENCLAW: {"task"},
        Format.CODE: {"prompt", "reward_model"},
        Format.MILES: {"prompt", "metadata"},
        Format.SWE_SYNTH: {"task_id", "extra"},
        Format.GENERATED: {"family", "seed", "split"},
    }
    return next((form for form, names in wanted.items() if names <= keys), None)


def write_tasks(tasks: Iterable[Task], form: str, target: Path) -> None:
    """Write ``tasks``, all or none: folder formats below the folder ``target``, the others as the file ``target``.

    Raises TaskError where something exists already, or a task cannot be written so that it is read back equal.
    """
    planned = plan(format_of(form), tasks, target)
    if planned.problems:
        raise planned.problems[0]
    planned.write()
