"""Encodes tasks as JSON for clients that hold the tasks themselves, and checks tasks that come from outside.

Bytes are URL-safe base64. Everything that a task can request of the host is bounded here before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.cli.validation_errors import first_invalid_value
from protocol.errors import UserError
from sandbox.docker.network.private_networks import MAX_SERVICES
from sandbox.images.image_names import is_reference
from sandbox.tasks.task import ImageBuild, Task, TaskHealthcheck, TaskService, TestsEnvironment

_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_ALLOWED_HOST = re.compile(r"(\*\.)?[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
MAX_MEMORY_MB, MAX_PIDS, MAX_CPUS, MAX_SECONDS = 1 << 20, 1 << 16, 1024.0, 86_400.0
MAX_STORAGE_MB = 1 << 24
MAX_FILES, MAX_CONTEXT_BYTES, MAX_TEXT, MAX_NAMES = 10_000, 512 << 20, 1 << 20, 1000
"""Maximum files of a build context, their total bytes, characters of a text, and entries of a list or mapping."""


class TaskRefused(UserError):
    """A task from outside is invalid or requests more than it may have."""


class _Carrier(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", extra="forbid", allow_inf_nan=False)
    task: Task


def encode_task(task: Task) -> dict[str, Any]:
    """Encode a task as JSON values, which :func:`decode_task` decodes to an equal task."""
    return cast("dict[str, Any]", json.loads(_Carrier(task=task).model_dump_json())["task"])


def decode_task(value: object) -> Task:
    """Decode and check a task. Raises TaskRefused, which names the first error."""
    try:
        task = _Carrier.model_validate_json(json.dumps({"task": value})).task
    except ValidationError as error:
        where, why = first_invalid_value(error)
        raise TaskRefused(f"not a valid task: {where.partition('.')[2]}: {why}") from error
    return check_task_bounds(task)


def check_task_bounds(task: Task) -> Task:
    """Return the task. Raises TaskRefused if it exceeds a limit."""
    own = {
        "id": _ID.fullmatch(task.id),
        "workdir": _absolute(task.workdir),
        "image": not task.image or is_reference(task.image),
        "files": all(map(_absolute, task.files)),
        "tests": all(map(_relative, task.tests)),
        "solution_files": all(map(_relative, task.solution_files)),
        "reports": len(task.reports) <= MAX_NAMES and all(map(_absolute, task.reports)),
        "artifacts": len(task.artifacts) <= MAX_NAMES and all(map(_absolute, task.artifacts)),
        "env": _is_env(task.env),
        "agent_env": _is_env(task.agent_env),
        "test_env": _is_env(task.test_env),
        "solution_env": _is_env(task.solution_env),
        "agent_user": _is_text(task.agent_user, 100),
        "tests_user": _is_text(task.tests_user, 100),
        "healthcheck": task.healthcheck is None or _is_healthcheck(task.healthcheck),
        "setup": "\0" not in task.setup,
        "run_tests": "\0" not in task.run_tests,
        "answer": _is_text(task.answer),
        "memory_mb": 0 < task.memory_mb <= MAX_MEMORY_MB,
        "shm_mb": 0 < task.shm_mb <= MAX_MEMORY_MB,
        "tmpfs": len(task.tmpfs) <= MAX_NAMES and all(map(_absolute, task.tmpfs)),
        "storage_mb": 0 < task.storage_mb <= MAX_STORAGE_MB,
        "pids": 0 < task.pids <= MAX_PIDS,
        "cpus": 0 < task.cpus <= MAX_CPUS,
        "agent_timeout_s": 0 < task.agent_timeout_s <= MAX_SECONDS,
        "test_timeout_s": 0 < task.test_timeout_s <= MAX_SECONDS,
        "build_timeout_s": 0 < task.build_timeout_s <= MAX_SECONDS,
        "network.allowed_hosts": len(task.network.allowed_hosts) <= MAX_NAMES
        and all(map(_ALLOWED_HOST.fullmatch, task.network.allowed_hosts)),
        "services": len(task.services) <= MAX_SERVICES and _differ(service.name for service in task.services),
    }
    judged = own | _build("build", task.build) | _tests_environment(task.tests_environment)
    for number, service in enumerate(task.services):
        judged |= _service(f"services.{number}", service)
    wrong = [what for what, right in judged.items() if not right]
    if wrong:
        raise TaskRefused(f"task {task.id[:80]!r} exceeds its limits: {', '.join(wrong)}")
    return task


def _build(where: str, build: ImageBuild | None) -> dict[str, object]:
    """Map each property of a build context to whether it is within bounds."""
    if build is None:
        return {}
    return {
        f"{where}.files": len(build.files) <= MAX_FILES
        and all(map(_relative, build.files))
        and not _overlap(build.files)
        and sum(map(len, build.files.values())) <= MAX_CONTEXT_BYTES,
        f"{where}.dockerfile": build.dockerfile in build.files,
        f"{where}.executable": build.executable <= build.files.keys(),
        f"{where}.args": _is_env(build.args),
        f"{where}.target": _is_text(build.target, 200),
    }


def _tests_environment(own: TestsEnvironment | None) -> dict[str, object]:
    if own is None:
        return {}
    return _build("tests_environment.build", own.build) | {
        "tests_environment.image": not own.image or is_reference(own.image),
        "tests_environment.env": _is_env(own.env),
        "tests_environment.workdir": not own.workdir or _absolute(own.workdir),
    }


def _service(where: str, service: TaskService) -> dict[str, object]:
    return _build(f"{where}.build", service.build) | {
        f"{where}.name": _HOST_NAME.fullmatch(service.name),
        f"{where}.image": not service.image or is_reference(service.image),
        f"{where}.command": len(service.command) <= MAX_NAMES and all(_is_text(each) for each in service.command),
        f"{where}.env": _is_env(service.env),
        f"{where}.healthcheck": _is_text(service.healthcheck),
        f"{where}.shm_mb": 0 < service.shm_mb <= MAX_MEMORY_MB,
        f"{where}.tmpfs": len(service.tmpfs) <= MAX_NAMES and all(map(_absolute, service.tmpfs)),
        f"{where}.memory_mb": 0 < service.memory_mb <= MAX_MEMORY_MB,
        f"{where}.cpus": 0 < service.cpus <= MAX_CPUS,
    }


def _is_text(text: str, most: int = MAX_TEXT) -> bool:
    return "\0" not in text and len(text) <= most


def _is_env(values: Mapping[str, str]) -> bool:
    right = all(_ENV_NAME.fullmatch(name) and _is_text(value) for name, value in values.items())
    return right and len(values) <= MAX_NAMES


def _is_healthcheck(check: TaskHealthcheck) -> bool:
    seconds = (check.interval_s, check.timeout_s, check.start_interval_s)
    return (
        _is_text(check.command)
        and all(0 < each <= MAX_SECONDS for each in seconds)
        and 0 <= check.start_period_s <= MAX_SECONDS
        and 1 <= check.retries <= MAX_NAMES
    )


def _differ(names: Iterable[str]) -> bool:
    seen = list(names)
    return len(set(seen)) == len(seen)


def _overlap(paths: Collection[str]) -> bool:
    """Return whether one of the paths is a parent folder of another."""
    return any(str(above) in paths for path in paths for above in PurePosixPath(path).parents)


def _plain(path: str) -> bool:
    return "\0" not in path and len(path.encode(errors="replace")) <= 4000 and ".." not in path.split("/")


def _absolute(path: str) -> bool:
    return path.startswith("/") and _plain(path)


def _relative(path: str) -> bool:
    return bool(path) and not path.startswith("/") and _plain(path)
