"""A data set: the tasks that can be used, and every problem of those that cannot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import orjson

from sandbox.tasks.field_encoding import differing_fields
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.network_policy import NetworkPolicy, grant_networks
from sandbox.tasks.task import Task, TaskError


class TaskRemark(NamedTuple):
    task: str
    """Id of the task."""
    what: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """Tasks of one source, with the problems of the tasks that cannot be used."""

    tasks: tuple[Task, ...]
    """The usable tasks, in the order of their folders' names or of their rows."""
    problems: tuple[TaskError, ...]
    """Every problem of every unusable task, in the same order."""
    remarks: tuple[TaskRemark, ...] = ()
    """Keys of usable tasks that longshore does not follow, because they cannot matter."""
    notices: tuple[str, ...] = ()
    """Lines about the tasks as a whole."""

    @property
    def first_problems(self) -> tuple[TaskError, ...]:
        """The first problem of each unusable task."""
        return tuple({problem.folder: problem for problem in reversed(self.problems)}.values())[::-1]

    def filtered(self, keeps: Callable[[str], bool]) -> Dataset:
        """Keep the tasks and the problems of tasks whose name ``keeps`` accepts.

        An unusable row has no name, so its problems always stay.
        """
        problems = (each for each in self.problems if keeps(each.folder.name) or not each.folder.is_dir())
        tasks = tuple(task for task in self.tasks if keeps(task.id))
        remarks = tuple(remark for remark in self.remarks if keeps(remark.task))
        return replace(self, tasks=tasks, problems=tuple(problems), remarks=remarks)

    def with_network(self, policy: NetworkPolicy, option: str) -> Dataset:
        """Give each task the network that ``policy`` grants, and add a notice if that is less than they ask for.

        ``option``: how a user sets the policy, without its value."""
        tasks, notice = grant_networks(self.tasks, policy, option)
        return replace(self, tasks=tasks, notices=(*self.notices, notice) if notice else self.notices)

    def only_gradable(self) -> Dataset:
        """Turn each task without tests and without an answer into a problem: every attempt would get the same score."""
        why = "nothing grades it: every attempt would get the same score"
        return self.without(lambda task: () if task.gradable else (("has no tests", why),))

    def without(self, find_problems: Callable[[Task], Iterable[tuple[str, str]]]) -> Dataset:
        """Turn each task in which ``find_problems`` finds problems, with their reasons, into these."""
        found = {task.id: [TaskError(Path(task.id), *each) for each in find_problems(task)] for task in self.tasks}
        kept = tuple(task for task in self.tasks if not found[task.id])
        return replace(self, tasks=kept, problems=(*self.problems, *chain.from_iterable(found.values())))

    @classmethod
    def from_loaded(cls, loaded: Iterable[tuple[Path, LoadedTask]]) -> Dataset:
        """Collect loaded tasks with their locations.  A second task of the same id is a problem."""
        tasks: dict[str, Task] = {}
        problems: list[TaskError] = []
        remarks: list[TaskRemark] = []
        for location, each in loaded:
            problems += each.problems
            if each.task is None:
                continue
            if each.task.id in tasks:
                problems.append(TaskError(location, f"is a second task named {each.task.id!r}", "an id is unique"))
                continue
            tasks[each.task.id] = each.task
            remarks += (TaskRemark(each.task.id, what) for what in each.remarks)
        return cls(tuple(tasks.values()), tuple(problems), tuple(remarks))


def dataset_checksum(tasks: Iterable[Task]) -> str:
    """Return ``sha256:…`` over the content of the tasks, independent of their order, format and machine."""
    bare = Task("", "")
    texts = (orjson.dumps([task.id, differing_fields(task, bare)], option=orjson.OPT_SORT_KEYS) for task in tasks)
    each = sorted(hashlib.sha256(text).digest() for text in texts)
    return f"sha256:{hashlib.sha256(b''.join(each)).hexdigest()}"
