"""Tasks that belong together, and what is wrong with those that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox.tasks.formats.folders import FolderFormat, LoadedTask, load_task_folder
from sandbox.tasks.task import Task, TaskError


@dataclass(frozen=True, slots=True)
class Dataset:
    tasks: tuple[Task, ...]
    """In order of their folders' names, or of the rows."""
    problems: tuple[TaskError, ...]
    """Every problem of every task that cannot be used, in the same order."""

    @property
    def first_problems(self) -> tuple[TaskError, ...]:
        """The first problem of each task that cannot be used."""
        return tuple({problem.folder: problem for problem in reversed(self.problems)}.values())[::-1]

    def only_gradable(self) -> Dataset:
        """Less the tasks that nothing grades, which cannot be used then: whatever is done there is worth the same."""
        why = "nothing grades it: whatever is done there is worth the same"
        ungraded = (TaskError(Path(task.id), "has no tests", why) for task in self.tasks if not task.gradable)
        return Dataset(tuple(task for task in self.tasks if task.gradable), (*self.problems, *ungraded))

    @classmethod
    def from_loaded(cls, loaded: Iterable[tuple[Path, LoadedTask]]) -> Dataset:
        """``loaded`` with the place of each.  A second task of one name is a problem: an id is unique."""
        tasks: dict[str, Task] = {}
        problems: list[TaskError] = []
        for place, each in loaded:
            problems += each.problems
            if each.task is None:
                continue
            if each.task.id in tasks:
                problems.append(TaskError(place, f"is a second task named {each.task.id}", "an id is unique"))
                continue
            tasks[each.task.id] = each.task
        return cls(tuple(tasks.values()), tuple(problems))

    @classmethod
    def from_folders(cls, form: FolderFormat, folder: Path) -> Dataset:
        """All tasks of ``folder``'s sub-folders; hidden ones and files are passed over.

        Raises TaskError when ``folder`` is no folder.
        """
        if not folder.is_dir():
            raise TaskError(
                folder, "is not a folder", "a data set is a folder of task folders: see python -m sandbox.tasks --help"
            )
        entries = (each for each in sorted(folder.iterdir()) if not each.name.startswith(".") and each.is_dir())
        return cls.from_loaded((entry, load_task_folder(form, entry)) for entry in entries)
