"""Generates any number of tasks by family, seed and split.

A task is a function of (family, seed, split) and uses only the vocabulary of its split
(:mod:`~sandbox.tasks.formats.generated.vocabulary`), so held-out tasks cannot leak into the warm start or into
training; a whole family is held out as well.  Training may repeat an instruction with other file contents; no two
evaluation tasks share one.

As a file: JSON Lines of ``{"family", "seed", "split"}``, from which the same tasks are generated anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from protocol.errors import UserError
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES, HELD_OUT_FAMILY, TaskDraft
from sandbox.tasks.formats.generated.shell_checks import check_script
from sandbox.tasks.formats.generated.vocabulary import draw_choices
from sandbox.tasks.formats.rows import JsonRow, RowFormat
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task, TaskError

WORKDIR = "/app"
_SEEDS = 100_000
"""Number of instances of a family that belong to one seed."""
_TEST_FILE = "check.sh"
_RUN_TESTS = f'#!/bin/sh\n. "${{TEST_DIR:-/tests}}/{_TEST_FILE}"\n'


def draft_task(family: str, seed: int, split: TaskSplit) -> TaskDraft:
    """Draw an instance, before it becomes a task."""
    return FAMILIES[family](draw_choices(random.Random(f"{family}/{split}/{seed}"), split))


def make_task(family: str, seed: int, split: TaskSplit) -> Task:
    """Return the task (family, seed, split), the same in every process. Raises KeyError for an unknown family."""
    made = draft_task(family, seed, split)
    return Task(
        id=f"{family}-{split}-{seed:08d}",
        instruction=made.instruction,
        family=family,
        files={
            f"{WORKDIR}/{path}": content if isinstance(content, bytes) else content.encode()
            for path, content in made.files.items()
        },
        tests={_TEST_FILE: check_script(made.checks, WORKDIR).encode()},
        run_tests=_RUN_TESTS,
        expected_tests=tuple(check.name for check in made.checks),
        solution=f"{made.command}\n",
        workdir=WORKDIR,
        agent_timeout_s=60.0,
        test_timeout_s=20.0,
    )


def training_families(held_out_family: str = HELD_OUT_FAMILY) -> tuple[str, ...]:
    """Return every family except the held-out one; ``""`` holds none out. Raises UserError for an unknown name."""
    if held_out_family and held_out_family not in FAMILIES:
        raise UserError(f"there is no task family {held_out_family!r}: choose one of {', '.join(FAMILIES)}")
    return tuple(name for name in FAMILIES if name != held_out_family)


def training_tasks(seed: int, count: int, *, held_out_family: str = HELD_OUT_FAMILY) -> list[Task]:
    """Return ``count`` training tasks, cycling through the families, so that each batch holds about as many of each."""
    names, first = training_families(held_out_family), seed * _SEEDS
    return [make_task(names[n % len(names)], first + n // len(names), TaskSplit.TRAIN) for n in range(count)]


def held_out_tasks(seed: int, count_per_family: int, *, held_out_family: str = HELD_OUT_FAMILY) -> list[Task]:
    """Return evaluation tasks of every trained family, then of the held-out family."""
    names, first = training_families(held_out_family), seed * _SEEDS
    return [
        task
        for name in (*names, *({held_out_family} - {""}))
        for task in islice(_distinct(make_task(name, n, TaskSplit.HELD_OUT) for n in count(first)), count_per_family)
    ]


def _distinct(tasks: Iterable[Task]) -> Iterator[Task]:
    """Yield the tasks whose instruction did not occur before."""
    seen = set[str]()
    for task in tasks:
        if task.instruction not in seen:
            seen.add(task.instruction)
            yield task


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")
    family: str
    seed: int
    split: TaskSplit


def _read(row: JsonRow, problems: TaskProblems) -> Task:
    given = problems.validate("row", row, _Row)
    if given is not None and given.family in FAMILIES:
        return make_task(given.family, given.seed, given.split)
    if given is not None:
        problems.add(f"there is no task family {given.family!r}", f"choose one of {', '.join(FAMILIES)}")
    return Task("unreadable", "unreadable")


def _write(task: Task) -> JsonRow:
    family, _, rest = task.id.partition("-")
    split, _, seed = rest.partition("-")
    if family in FAMILIES and split in set(TaskSplit) and seed.removeprefix("-").isdecimal():
        row: JsonRow = {"family": family, "seed": int(seed), "split": split}
        if make_task(family, int(seed), TaskSplit(split)) == task:
            return row
    raise TaskError(Path(task.id), "is not a generated task", "this format only names those: convert to another")


FORMAT = RowFormat(_read, _write)
