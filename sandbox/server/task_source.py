"""Resolves a request's ``task_meta`` to a task: one sent by the client, or a folder of this server's data set."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.http.task_codec import TaskRefused, check_task_bounds, decode_task
from sandbox.tasks.formats.rows import load_any_task_folder
from sandbox.tasks.network_policy import DEFAULT_NETWORK_POLICY, NetworkPolicy, apply_network_policy
from sandbox.tasks.task import Task


class TaskSource:
    """Tasks of requests.

    ``dataset`` is the folder that ``task_path`` is relative to, None if clients send their tasks; ``network`` decides
    on the network of its tasks."""

    def __init__(self, dataset: Path | None, network: NetworkPolicy = DEFAULT_NETWORK_POLICY) -> None:
        self._dataset, self._network = dataset.resolve() if dataset else None, network

    def resolve(self, meta: Mapping[str, Any]) -> Task:
        """Return the task. Blocks. Raises UserError (TaskRefused, TaskError)."""
        if "task" in meta:
            return decode_task(meta["task"])
        if self._dataset is None:
            raise TaskRefused("this server has no data set: start it with --dataset, or send the whole task as 'task'")
        path = meta.get("task_path")
        if not isinstance(path, str) or not path or "\0" in path:
            raise TaskRefused("task_meta names no task_path")
        folder = (self._dataset / path).resolve()
        if not folder.is_relative_to(self._dataset) or folder == self._dataset:
            raise TaskRefused(f"task_path {path[:200]!r} is outside the server's data set")
        try:
            if not folder.is_dir():
                raise TaskRefused(f"task_path {path[:200]!r} is no folder of the server's data set")
            task = load_any_task_folder(folder).require_task()
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise TaskRefused(f"task_path {path[:200]!r} is longer than a file's name can be") from error
        if task.steps:
            raise TaskRefused(
                f"task {task.id} has steps, which no client plays that names its tasks by task_path: run it with "
                "longshore, which sends the whole task (sandbox.provider = 'pool')"
            )
        return check_task_bounds(apply_network_policy(task, self._network))
