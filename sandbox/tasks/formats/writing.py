"""Writes a data set: all of it is encoded before the first write, and a failed write removes everything again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson

from protocol.files.filesystem import replace_file
from sandbox.tasks.file_tree import TreeFile, write_tree
from sandbox.tasks.formats.folders import FolderFormat, encode_task_folder
from sandbox.tasks.formats.rows import TASK_FOLDERS, PointerFormat, RowFormat, encode_row
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task, TaskError


@dataclass(frozen=True, slots=True)
class DatasetWritePlan:
    """The files to write, and the tasks that cannot be written."""

    target: Path
    folders: Mapping[Path, Mapping[str, TreeFile]]
    rows: bytes | None
    """Content of the file ``target``; None for a folder format."""
    problems: tuple[TaskError, ...]
    """Problem of each omitted task, which cannot be written in this format."""

    def write(self) -> None:
        """Write everything. Raises TaskError, and leaves nothing behind, if something exists or cannot be written."""
        with ExitStack() as undo:
            try:
                for path in (*self.folders, *(() if self.rows is None else (self.target,))):
                    if path.exists():
                        raise TaskError(path, "exists already", "nothing is overwritten: remove it first")
                for folder, tree in self.folders.items():
                    undo.callback(shutil.rmtree, folder, ignore_errors=True)
                    write_tree(tree, folder)
                if self.rows is not None:
                    self.target.parent.mkdir(parents=True, exist_ok=True)
                    replace_file(self.target, self.rows)
            except OSError as error:
                raise TaskError(self.target, "cannot be written", str(error)) from error
            undo.pop_all()


def plan_dataset_write(
    form: FolderFormat | PointerFormat | RowFormat, tasks: Iterable[Task], target: Path
) -> DatasetWritePlan:
    """Encode those of ``tasks`` that ``form`` can hold: below the folder ``target``, or as the file ``target`` with the
    folders that it points at next to it."""
    parent = target.parent / TASK_FOLDERS if isinstance(form, PointerFormat) else target
    folders, rows, problems = dict[Path, dict[str, TreeFile]](), list[bytes](), list[TaskError]()
    for task in tasks:
        own = TaskProblems(Path(task.id))
        with own.collecting_errors("cannot be written"):
            if not isinstance(form, RowFormat):
                tree = encode_task_folder(form.folders if isinstance(form, PointerFormat) else form, task)
                if parent / task.id in folders:
                    raise TaskError(own.location, f"is a second task named {task.id!r}", "an id is unique")
                folders[parent / task.id] = tree
            if not isinstance(form, FolderFormat):
                row = encode_row(form, task) if isinstance(form, RowFormat) else form.write(task)
                rows.append(orjson.dumps(row) + b"\n")
        problems += own.found
    return DatasetWritePlan(
        target, folders, None if isinstance(form, FolderFormat) else b"".join(rows), tuple(problems)
    )
