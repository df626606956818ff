"""Knows all formats by name: detects and reads them.

A package adds one as an entry point of the group ``longshore.task_formats``: a :class:`FolderFormat`,
:class:`RowFormat` or :class:`PointerFormat`.  Such a format is never detected, only used by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from pathlib import Path

from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin, plugin_names
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.formats import answer_rows, code_rows, miles, openclaw, swe_synth, terminal_bench
from sandbox.tasks.formats.folders import (
    FolderFormat,
    find_task_folders,
    find_unread_tasks,
    has_marker,
    load_task_folder,
    subfolders,
)
from sandbox.tasks.formats.generated import generator
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.formats.hub import fetch_hub_dataset, is_hub_name
from sandbox.tasks.formats.liveweb import rows as liveweb_rows
from sandbox.tasks.formats.rows import JsonRow, PointerFormat, RowFormat, load_rows, read_rows
from sandbox.tasks.formats.swe_bugs import bug_rows
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import TaskError


class TaskFormat(StrEnum):
    """The built-in formats."""

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
    LIVEWEB = "liveweb"
    """JSON or JSON Lines with a page to start from and a question."""
    SWE_BUG = "swe_bug"
    """JSON or JSON Lines of SWE-SYNTH bugs."""
    CODE = "code"
    """JSON Lines with a prompt and ground-truth tests."""
    ANSWER = "answer"
    """JSON Lines or Parquet with a question and its answer."""
    GENERATED = "generated"
    """JSON Lines that name generated tasks."""


FOLDER_FORMATS: dict[TaskFormat, FolderFormat] = {
    TaskFormat.TERMINAL_BENCH: terminal_bench.FORMAT,
    TaskFormat.HARBOR: HARBOR,
}
TASK_MARKERS = [each.marker for each in FOLDER_FORMATS.values()]
"""Files of which a task's folder has one."""
ROW_FORMATS: dict[TaskFormat, RowFormat | PointerFormat] = {
    TaskFormat.OPENCLAW: openclaw.FORMAT,
    TaskFormat.OPENCLAW_MESSAGES: openclaw.MESSAGES_FORMAT,
    TaskFormat.MILES: miles.FORMAT,
    TaskFormat.SWE_SYNTH: swe_synth.FORMAT,
    TaskFormat.LIVEWEB: liveweb_rows.FORMAT,
    TaskFormat.SWE_BUG: bug_rows.FORMAT,
    TaskFormat.CODE: code_rows.FORMAT,
    TaskFormat.ANSWER: answer_rows.FORMAT,
    TaskFormat.GENERATED: generator.FORMAT,
}


def format_names() -> list[str]:
    """Return the names of all formats, those of plugins last."""
    return [*(each.value for each in TaskFormat), *plugin_names(PluginGroup.TASK_FORMATS)]


def find_format(name: str) -> FolderFormat | RowFormat | PointerFormat:
    """Return a format by name. Raises UserError for an unknown one, or a plugin that is not a format."""
    if name in list(TaskFormat):
        return (FOLDER_FORMATS | ROW_FORMATS)[TaskFormat(name)]
    found = load_plugin(PluginGroup.TASK_FORMATS, name)
    if not isinstance(found, FolderFormat | RowFormat | PointerFormat):
        raise UserError(
            f"the task format '{name}' is invalid: its entry point must be a FolderFormat, a RowFormat or a "
            "PointerFormat (docs/plugins.md)"
        )
    return found


def load_tasks(path: Path, form: str | None = None, root: Path | None = None) -> Dataset:
    """Load the tasks at ``path``, a data set, a single task folder, or a data set of the hub
    (:mod:`sandbox.tasks.formats.hub`).

    ``root``: base of paths in rows (default: their file's folder). Raises TaskError if there is nothing to read or
    the format cannot be detected, UserError for an unknown format.
    """
    sources = fetch_hub_dataset(path, TASK_MARKERS) if is_hub_name(path) else [path]
    loaded = list(chain.from_iterable(_load(each, form, root) for each in sources))
    beside = {location.parent for location, _ in loaded if location not in sources and location.is_dir()}
    return replace(
        Dataset.from_loaded(loaded),
        notices=tuple(
            f"{file} is not read: it lies beside task folders; rows are a data set of their own"
            for folder in sorted(beside)
            for file in _row_files(folder)
        ),
    )


def _load(path: Path, form: str | None, root: Path | None) -> Iterable[tuple[Path, LoadedTask]]:
    if not path.exists():
        raise TaskError(
            path, "is missing", "name a folder of task folders or a file of rows, in a run by --set data.path=PATH"
        )
    name = form or detect_format(path)
    found = find_format(name)
    if not isinstance(found, FolderFormat):
        if path.is_dir():
            raise TaskError(path, "is a folder", f"a data set in the format {name} is a file")
        return load_rows(found, path, root)
    if not path.is_dir():
        raise TaskError(path, "is not a folder", "a data set is a folder of task folders: see longshore tasks --help")
    forms = {name: found} if form else {name: found} | FOLDER_FORMATS
    markers = {found.marker, *TASK_MARKERS}
    if has_marker(path, markers):
        return [(path, _load_folder(path, forms))]
    found = ((each, _load_folder(each, forms)) for each in find_task_folders(path, markers))
    unread = ((each.folder, LoadedTask(None, (each,))) for each in find_unread_tasks(path, markers))
    return chain(found, unread)


def _load_folder(folder: Path, forms: Mapping[str, FolderFormat]) -> LoadedTask:
    """Load the task in ``folder`` in the first of ``forms`` that it is in.  Never raises."""
    for form in forms.values():
        if (folder / form.marker).exists():
            return load_task_folder(form, folder)
    problems = TaskProblems(folder)
    with problems.collecting_errors():
        if other := next((name for name, form in FOLDER_FORMATS.items() if (folder / form.marker).exists()), None):
            why = f"the set is read as {', '.join(forms)}: name no format, and each folder is read in its own"
            problems.add(f"is a task in the format {other}", why)
        else:
            markers = [form.marker for form in forms.values()]
            problems.add(f"{' or '.join(markers)} is missing", _find_elsewhere(folder, markers))
    return problems.loaded(None)


def _find_elsewhere(folder: Path, markers: Iterable[str]) -> str:
    """Say what ``folder``, in which no task was found, has instead."""
    deeper = chain.from_iterable(folder.glob(f"{depth}/{marker}") for depth in ("*", "*/*") for marker in markers)
    if found := min(deeper, default=None):
        here = found.relative_to(folder)
        why = f"{here} is too deep: tasks are looked for in FOLDER/TASK and FOLDER/CATEGORY/TASK"
        return f"{why}, so load {found.parents[1]} by itself"
    if rows := _row_files(folder):
        return f"{rows[0].name} in it is not read: rows are a data set of their own"
    return "it describes the task"


def _row_files(folder: Path) -> list[Path]:
    """Return the files in ``folder`` that are rows by their names."""
    return sorted(each for each in folder.iterdir() if each.suffix in {".jsonl", ".parquet"} and each.is_file())


def detect_format(path: Path) -> TaskFormat:
    """Detect the format of ``path``. Raises TaskError if nothing identifies it."""
    if path.is_dir():
        children = subfolders(path)
        for folder in chain([path], children, chain.from_iterable(map(subfolders, children))):
            for form, folder_format in FOLDER_FORMATS.items():
                if (folder / folder_format.marker).exists():
                    return form
        raise TaskError(
            path, f"has no task: no {' or '.join(TASK_MARKERS)}", "name a folder of task folders, or of folders of them"
        )
    problem: TaskError | None = None
    for location, row in read_rows(path):
        if isinstance(row, TaskError):
            problem = problem or row
        elif form := _row_format(row):
            return form
        else:
            problem = problem or TaskError(location, "is no row in a known format", _missing_keys(row))
    raise problem or TaskError(path, "has no row", "name a file with a task a line")


_KEYS: dict[TaskFormat, set[str]] = {
    TaskFormat.OPENCLAW_MESSAGES: {"task", "metadata"},
    TaskFormat.OPENCLAW: {"task"},
    TaskFormat.CODE: {"prompt", "reward_model"},
    TaskFormat.MILES: {"prompt", "metadata"},
    TaskFormat.SWE_SYNTH: {"task_id", "extra"},
    TaskFormat.LIVEWEB: {"task_id", "question"},
    TaskFormat.SWE_BUG: {"source", "original", "bug"},
    TaskFormat.GENERATED: {"family", "seed", "split"},
}
"""Keys by which the rows of a format are known."""
_USUAL_KEYS = {TaskFormat.SWE_BUG: {"bug_types", "problem_statement", "target_tests", "patch", "source_task_id"}}
"""More keys that suggest a format."""


def _row_format(row: JsonRow) -> TaskFormat | None:
    found = next((form for form, names in _KEYS.items() if names <= set(row)), None)
    return found or (TaskFormat.ANSWER if answer_rows.is_answer_row(row) else None)


def _missing_keys(row: JsonRow) -> str:
    """Say what a row lacks of the formats that it is most like, and the command that reads it as a named one."""
    alike = {form: len((names | _USUAL_KEYS.get(form, set())) & set(row)) for form, names in _KEYS.items()}
    nearest = [form for form, count in alike.items() if count and count == max(alike.values())]
    lacking = [f"as {form} it lacks {', '.join(sorted(_KEYS[form] - set(row)))}" for form in nearest]
    hint = f"longshore tasks validate FILE --format NAME reads it as one of {', '.join(ROW_FORMATS)}"
    return "; ".join([*lacking, hint])
