"""OpenClaw JSON Lines, both shapes; each row points at a task folder by a path relative to the data set's root.

``{"task": {"task_name", "task_path", "instruction", "data_source"}}``, and with messages
``{"task": [{"role": "user", "content": instruction}], "metadata": {"task_name", "task_path", "instruction",
"data_source"}}``. Only name and instruction are the row's; everything else comes from the folder.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sandbox.tasks.formats import terminal_bench
from sandbox.tasks.formats.rows import (
    TASK_FOLDERS,
    JsonRow,
    PointerFormat,
    PromptMessage,
    RowPart,
    load_pointed_task,
    read_prompt,
    user_prompt,
)
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task

_SOURCE = "terminal_bench"


class _Pointer(RowPart):
    task_name: str
    task_path: str
    instruction: Annotated[str, Field(min_length=1)] | None = None
    data_source: str = _SOURCE


class _TaskRow(RowPart):
    task: _Pointer


class _MessagesRow(RowPart):
    task: list[PromptMessage]
    metadata: _Pointer


def _read(row: JsonRow, root: Path, problems: TaskProblems) -> LoadedTask:
    instruction, pointer = None, None
    if isinstance(row.get("task"), list):
        if messages := problems.validate("row", row, _MessagesRow):
            pointer, instruction = messages.metadata, read_prompt(messages.task, problems)
            if pointer.instruction not in {None, instruction}:
                problems.remark("its metadata has another instruction than its messages, which is not used")
            messages.remark_unused_keys("the row", problems)
            pointer.remark_unused_keys("its metadata", problems)
    elif first := problems.validate("row", row, _TaskRow):
        pointer, instruction = first.task, first.task.instruction
        first.remark_unused_keys("the row", problems)
        pointer.remark_unused_keys("its task", problems)
    if pointer is None:
        return problems.loaded(None)
    loaded = load_pointed_task(root, pointer.task_path, problems)
    if loaded.task is None:
        return loaded
    problems.remarks += loaded.remarks
    metadata = loaded.task.metadata | ({"data_source": pointer.data_source} if pointer.data_source != _SOURCE else {})
    named = {"id": pointer.task_name, "instruction": instruction or loaded.task.instruction, "metadata": metadata}
    task = dataclasses.replace(loaded.task, **named)
    problems.check_rules(task)
    return problems.loaded(task)


def _pointer(task: Task) -> JsonRow:
    return {
        "task_name": task.id,
        "task_path": f"{TASK_FOLDERS}/{task.id}",
        "instruction": task.instruction,
        "data_source": task.metadata.get("data_source", _SOURCE),
    }


def _write(task: Task) -> JsonRow:
    return {"task": _pointer(task)}


def _write_messages(task: Task) -> JsonRow:
    return {"task": user_prompt(task.instruction), "metadata": _pointer(task)}


FORMAT = PointerFormat(_read, _write, terminal_bench.FORMAT)
MESSAGES_FORMAT = PointerFormat(_read, _write_messages, terminal_bench.FORMAT)
"""The shape with messages; each format reads both shapes."""
