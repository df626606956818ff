"""A data set to be written: all of it is made before the first write, and a write that fails takes all of it back, so
that the same can be asked again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson

from protocol.filesystem import replace_whole
from sandbox.tasks.folders import FolderFormat, tree_of
from sandbox.tasks.problems import Problems
from sandbox.tasks.rows import TASKS, PointerFormat, RowFormat, row_of
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.tree import File, write_tree


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be written, and what cannot be."""

    target: Path
    folders: Mapping[Path, Mapping[str, File]]
    rows: bytes | None
    """Content of the file ``target``; None where there are folders alone."""
    problems: tuple[TaskError, ...]
    """Why each task that is left out cannot be written in this format."""

    def write(self) -> None:
        """Raises TaskError, and leaves none of it behind, where something is in the way or cannot be written."""
        with ExitStack() as undo:
            try:
                for place in (*self.folders, *(() if self.rows is None else (self.target,))):
                    if place.exists():
                        raise TaskError(place, "exists already", "nothing is written over another: remove it first")
                for folder, tree in self.folders.items():
                    undo.callback(shutil.rmtree, folder, ignore_errors=True)
                    write_tree(tree, folder)
                if self.rows is not None:
                    self.target.parent.mkdir(parents=True, exist_ok=True)
                    replace_whole(self.target, self.rows)
            except OSError as error:
                raise TaskError(self.target, "cannot be written", str(error)) from error
            undo.pop_all()


def plan(form: FolderFormat | PointerFormat | RowFormat, tasks: Iterable[Task], target: Path) -> Planned:
    """Of ``tasks``, those that ``form`` can hold: below the folder ``target``, or as the file ``target`` with the
    folders beside it that it points at.
    """
    parent = target.parent / TASKS if isinstance(form, PointerFormat) else target
    folders, rows, problems = dict[Path, dict[str, File]](), list[bytes](), list[TaskError]()
    for task in tasks:
        own = Problems(Path(task.id))
        with own.kept("cannot be written"):
            if not isinstance(form, RowFormat):
                tree = tree_of(form.folders if isinstance(form, PointerFormat) else form, task)
                if parent / task.id in folders:
                    raise TaskError(own.place, f"is a second task named {task.id}", "an id is unique")
                folders[parent / task.id] = tree
            if not isinstance(form, FolderFormat):
                row = row_of(form, task) if isinstance(form, RowFormat) else form.write(task)
                rows.append(orjson.dumps(row) + b"\n")
        problems += own.found
    return Planned(target, folders, None if isinstance(form, FolderFormat) else b"".join(rows), tuple(problems))
