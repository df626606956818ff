"""miles rows, each of which points at a Harbor folder ``<tasks>/<instance_id>``:
``{"label", "prompt": [{"role": "user", "content": instruction}], "metadata": {"agent_name", "instance_id"}}``.

``<tasks>`` is the folder ``tasks`` in the data set's root if it exists, else the root itself.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.formats.rows import (
    TASK_FOLDERS,
    JsonRow,
    PointerFormat,
    Prompt,
    RowPart,
    load_pointed_task,
    read_prompt,
    user_prompt,
)
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task

_AGENT = "terminus-2"
_KEPT = "miles.agent_name"
"""Key of :attr:`Task.metadata` for an agent other than the default one."""


class _Metadata(RowPart):
    agent_name: str = _AGENT
    instance_id: str


class _Row(RowPart):
    label: object = None
    """Not used: a task's tests decide."""
    prompt: Prompt
    metadata: _Metadata


def _read(row: JsonRow, root: Path, problems: TaskProblems) -> LoadedTask:
    given = problems.validate("row", row, _Row)
    if given is None:
        return problems.loaded(None)
    name = given.metadata.instance_id
    instruction = read_prompt(given.prompt, problems)
    given.remark_unused_keys("the row", problems)
    given.metadata.remark_unused_keys("its metadata", problems)
    loaded = load_pointed_task(root / TASK_FOLDERS if (root / TASK_FOLDERS).is_dir() else root, name, problems)
    if loaded.task is None:
        return loaded
    problems.remarks += loaded.remarks
    agent = {_KEPT: given.metadata.agent_name} if given.metadata.agent_name != _AGENT else {}
    task = dataclasses.replace(loaded.task, instruction=instruction, metadata=loaded.task.metadata | agent)
    problems.check_rules(task)
    return problems.loaded(task)


def _write(task: Task) -> JsonRow:
    return {
        "label": task.id,
        "prompt": user_prompt(task.instruction),
        "metadata": {"agent_name": task.metadata.get(_KEPT, _AGENT), "instance_id": task.id},
    }


FORMAT = PointerFormat(_read, _write, HARBOR)
