"""The data set on which each recipe is tried, in the format of the recipe's own document.

A new recipe joins :data:`PRACTICE_SETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from launch.bench.recipes.answer_rows import HELD_OUT, attempt_row, grpo_tcr_rows
from launch.bench.recipes.attempts import Attempt, CommandAttempt, PageAttempt
from launch.bench.recipes.terminal_tasks import attempt_terminal_task, harbor_tasks, terminal_bench_tasks
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, CATALOG_FILE
from sandbox.tasks.formats import miles, openclaw, terminal_bench
from sandbox.tasks.formats.folders import FolderFormat
from sandbox.tasks.formats.liveweb.rows import oracle_actions
from sandbox.tasks.formats.registry import TaskFormat
from sandbox.tasks.formats.rows import JsonRow, PointerFormat
from sandbox.tasks.formats.writing import plan_dataset_write
from sandbox.tasks.task import Task

GENERATED_TASKS = 2
"""Number of the demo's tasks: each has a command of its own to be learned."""

_REPAIRS = {
    "swe-synth-1": (42, "s/<=/</", "coinbook/ledger.py"),
    "swe-synth-2": (48, "s/not //", "coinbook/ledger.py"),
    "swe-synth-5": (13, "s/<=/</", "coinbook/statements.py"),
}
"""Bug of longshore-swe → the line, what is to be done with it, and its file."""
_WEB_TASKS = ("shop-cheapest-0", "wiki-first-author-0", "dashboard-busiest-team-0")


class PracticeSet(NamedTuple):
    """A small data set, and what the tiny model is taught about it."""

    format: TaskFormat
    write: Callable[[Path], tuple[str, ...]]
    """Writes the data set into a new folder, and returns the overrides with which a run reads it."""
    attempts: Callable[[Task], Sequence[Attempt]]
    """Attempts at a task, of which the first is right."""


def _task_writer(
    form: FolderFormat | PointerFormat, tasks: Callable[[], Sequence[Task]], name: str
) -> Callable[[Path], tuple[str, ...]]:
    def write(folder: Path) -> tuple[str, ...]:
        plan_dataset_write(form, tasks(), folder / name).write()
        return (f"data.path='{folder / name}'",)

    return write


def _row_writer(rows: Callable[[], Sequence[JsonRow]], name: str) -> Callable[[Path], tuple[str, ...]]:
    def write(folder: Path) -> tuple[str, ...]:
        folder.mkdir(parents=True)
        (folder / name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows()))
        return (f"data.path='{folder / name}'",)

    return write


def _write_grpo_tcr(folder: Path) -> tuple[str, ...]:
    """Write rows of each source, and hold out one of each for the validation after training."""
    path = _row_writer(grpo_tcr_rows, "open_agentrl_grpo_2k.jsonl")(folder)
    return *path, f"data.held_out_ids={','.join(HELD_OUT)}"


def _write_labelled(folder: Path) -> tuple[str, ...]:
    """Write task folders, and select them by the label of a ``datasets.toml``."""
    plan_dataset_write(terminal_bench.FORMAT, terminal_bench_tasks(), folder / "Dataset").write()
    (folder / CATALOG_FILE).write_text('[seta-env]\npath = "Dataset"\n')
    return f"data.path='{folder / CATALOG_FILE}'", "data.label=seta-env"


def _select_bugs(_: Path) -> tuple[str, ...]:
    """Write nothing: the bugs come with longshore."""
    return f"data.path='{BUILT_IN_CATALOG}'", "data.label=longshore-swe", f"data.task_ids={','.join(_REPAIRS)}"


def _attempt_repair(task: Task) -> Sequence[Attempt]:
    """Return a right repair, one that removes the line, and none."""
    line, change, file = _REPAIRS[task.id]
    return [CommandAttempt(f"sed -i '{line}{command}' {file}") for command in (change, "d", "p;d")]


def _select_web_tasks(_: Path) -> tuple[str, ...]:
    """Write nothing: the tasks come with longshore."""
    return f"data.path='{BUILT_IN_CATALOG}'", "data.label=longshore-web", f"data.task_ids={','.join(_WEB_TASKS)}"


def _attempt_web_task(task: Task) -> Sequence[Attempt]:
    """Return the right answer, and none."""
    answer: str = oracle_actions(task)[-1]["params"]["answer"]
    return PageAttempt(answer), PageAttempt("I do not know")


def _generate(_: Path) -> tuple[str, ...]:
    """Write nothing: the run generates its tasks."""
    return (f"data.training_tasks={GENERATED_TASKS}",)


def _attempt_generated_task(task: Task) -> Sequence[Attempt]:
    """Return the task's own solution, and a command that does nothing."""
    return CommandAttempt(task.solution.strip()), CommandAttempt("ls")


PRACTICE_SETS: Mapping[str, PracticeSet] = {
    "demo": PracticeSet(TaskFormat.GENERATED, _generate, _attempt_generated_task),
    "instruct": PracticeSet(
        TaskFormat.TERMINAL_BENCH,
        _task_writer(terminal_bench.FORMAT, terminal_bench_tasks, "tasks"),
        attempt_terminal_task,
    ),
    "seta_qwen3_8b": PracticeSet(TaskFormat.TERMINAL_BENCH, _write_labelled, attempt_terminal_task),
    "seta_miles_multinode": PracticeSet(
        TaskFormat.MILES, _task_writer(miles.FORMAT, harbor_tasks, "train.jsonl"), attempt_terminal_task
    ),
    "grpo_tcr_qwen3_4b": PracticeSet(TaskFormat.CODE, _write_grpo_tcr, attempt_row),
    "art_terminal": PracticeSet(TaskFormat.SWE_BUG, _select_bugs, _attempt_repair),
    "art_liveweb": PracticeSet(TaskFormat.LIVEWEB, _select_web_tasks, _attempt_web_task),
    "openclaw_terminal": PracticeSet(
        TaskFormat.OPENCLAW, _task_writer(openclaw.FORMAT, terminal_bench_tasks, "train.jsonl"), attempt_terminal_task
    ),
}
"""Recipe → its data set."""
