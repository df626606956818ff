"""A task as JSON, for clients that hold the task themselves; and what a task from outside must keep to.

Bytes are URL-safe base64.  Everything that a task can ask of the host is bounded here, before anything is done with it.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.errors import UserError
from sandbox.tasks.task import Task

_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_MEMORY_MB, MAX_PIDS, MAX_CPUS, MAX_SECONDS = 1 << 20, 1 << 16, 1024.0, 86_400.0


class TaskRefused(UserError):
    """A task from outside that asks for what it may not have, or is no task."""


class _Carrier(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", extra="forbid", allow_inf_nan=False)
    task: Task


def encode_task(task: Task) -> dict[str, Any]:
    """JSON values that :func:`decode_task` makes an equal task of."""
    return cast("dict[str, Any]", json.loads(_Carrier(task=task).model_dump_json())["task"])


def decode_task(value: object) -> Task:
    """Raises TaskRefused, which names the first thing that is wrong."""
    try:
        task = _Carrier.model_validate_json(json.dumps({"task": value})).task
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise TaskRefused(f"no task: {'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from error
    return bounded(task)


def bounded(task: Task) -> Task:
    """The task itself.  Raises TaskRefused when it is outside what a host gives."""
    wrong = [
        what
        for what, right in (
            ("id", _ID.fullmatch(task.id)),
            ("workdir", _absolute(task.workdir)),
            ("image", "\0" not in task.image and len(task.image) < 512),
            ("files", all(_absolute(path) for path in task.files)),
            ("tests", all(path and _plain(path) and not path.startswith("/") for path in task.tests)),
            ("env", all(_ENV_NAME.fullmatch(name) and "\0" not in value for name, value in task.env.items())),
            ("setup", "\0" not in task.setup),
            ("run_tests", "\0" not in task.run_tests),
            ("memory_mb", 0 < task.memory_mb <= MAX_MEMORY_MB),
            ("pids", 0 < task.pids <= MAX_PIDS),
            ("cpus", 0 < task.cpus <= MAX_CPUS),
            ("agent_timeout_s", 0 < task.agent_timeout_s <= MAX_SECONDS),
            ("test_timeout_s", 0 < task.test_timeout_s <= MAX_SECONDS),
        )
        if not right
    ]
    if wrong:
        raise TaskRefused(f"task {task.id[:80]!r} is out of bounds: {', '.join(wrong)}")
    return task


def _plain(path: str) -> bool:
    return "\0" not in path and len(path.encode()) <= 4000 and ".." not in path.split("/")


def _absolute(path: str) -> bool:
    return path.startswith("/") and _plain(path)
