"""Encodes tasks as JSON for clients that hold the tasks themselves, and checks tasks that come from outside.

Bytes are URL-safe base64. Everything that a task can request of the host is bounded here before it is used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.cli.validation_errors import first_invalid_value
from protocol.errors import UserError
from protocol.trajectory import MAX_REWARD
from sandbox.capabilities import SERVICE_CAPABILITIES
from sandbox.docker.network.private_networks import MAX_SERVICES
from sandbox.images.image_names import is_reference
from sandbox.process_limits import find_limit_problems
from sandbox.tasks.allowed_hosts import parse_allowed_host
from sandbox.tasks.file_tree import entry_problem
from sandbox.tasks.service_order import find_order_problems
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_containers import (
    RESTART,
    ImageBuild,
    SharedFolder,
    TaskHealthcheck,
    TaskService,
    TestsEnvironment,
)
from sandbox.tasks.task_grading import CollectCommand

_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VOLUME_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_ALLOWED_HOST = re.compile(r"(\*\.)?[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[?[0-9A-Fa-f:./]{2,64}\]?(:[0-9]{1,5})?")
_WEB_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f]{1,2000}")
MAX_MEMORY_MB, MAX_PIDS, MAX_CPUS, MAX_SECONDS = 1 << 20, 1 << 16, 1024.0, 86_400.0
MAX_STORAGE_MB = 1 << 24
MAX_UNIX_S = 1 << 36
"""Latest time of a file: the year 4147."""
MAX_FILES, MAX_CONTEXT_BYTES, MAX_TEXT, MAX_NAMES = 10_000, 512 << 20, 1 << 20, 1000
"""Maximum files of a build context, their total bytes, characters of a text, and entries of a list or mapping."""
MAX_PATTERN = 1000
"""Maximum characters of a pattern of excluded files."""
MAX_TASK_FILES = 3 * MAX_FILES
"""Maximum files of a task, those of its steps, tests, solutions and builds included.  With up to six marks each they
are within :data:`~sandbox.http.json_structure.MOST_MARKS`."""


class TaskRefused(UserError):
    """A task from outside is invalid or requests more than it may have."""


class _Carrier(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", extra="forbid", allow_inf_nan=False)
    task: Task


def encode_task(task: Task) -> dict[str, Any]:
    """Encode a task as JSON values, which :func:`decode_task` decodes to an equal task.  Raises TaskRefused if it has
    too many files for a request."""
    _check_file_count(task)
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
    _check_file_count(task)
    own = {
        "id": _ID.fullmatch(task.id),
        "entrypoint": _are_words(task.entrypoint or ()),
        "command": _are_words(task.command),
        "hostname": _is_own_host_name(task.hostname),
        "aliases": _are_host_names(task.aliases),
        "workdir": not task.workdir or _absolute(task.workdir),
        "image": not task.image or is_reference(task.image),
        "files": all(map(_absolute, task.files)),
        "tests": all(map(_relative, task.tests)),
        "solution_files": all(map(_relative, task.solution_files)),
        "reports": len(task.reports) <= MAX_NAMES and all(map(_absolute, task.reports)),
        "artifacts": len(task.artifacts) <= MAX_NAMES and all(map(_absolute, task.artifacts)),
        "artifact_excludes": _are_excludes(task.artifact_excludes, task.artifacts),
        "collect": _are_collected(task.collect),
        "env": _is_env(task.env),
        "agent_env": _is_env(task.agent_env),
        "test_env": _is_env(task.test_env),
        "solution_env": _is_env(task.solution_env),
        "agent_user": _is_text(task.agent_user, 100),
        "tests_user": _is_text(task.tests_user, 100),
        "container_user": _is_text(task.container_user, 100),
        "healthcheck": task.healthcheck is None or _is_healthcheck(task.healthcheck),
        "setup": "\0" not in task.setup,
        "run_tests": "\0" not in task.run_tests,
        "answer": _is_text(task.answer),
        "reply_program": not task.reply_program or _absolute(task.reply_program),
        "start_url": not task.start_url or bool(_WEB_ADDRESS.fullmatch(task.start_url)),
        "weights": all(0 <= weight <= MAX_REWARD for weight in task.weights.values()),
        "memory_mb": 0 < task.memory_mb <= MAX_MEMORY_MB,
        "shm_mb": 0 < task.shm_mb <= MAX_MEMORY_MB,
        "tmpfs": len(task.tmpfs) <= MAX_NAMES and all(map(_absolute, task.tmpfs)),
        "ulimits": not any(find_limit_problems(task.ulimits)),
        "read_only": len(task.read_only) <= MAX_NAMES and all(map(_absolute, task.read_only)),
        "volumes": _are_shared(task.volumes),
        "storage_mb": 0 < task.storage_mb <= MAX_STORAGE_MB,
        "pids": 0 < task.pids <= MAX_PIDS,
        "cpus": 0 < task.cpus <= MAX_CPUS,
        "agent_timeout_s": 0 < task.agent_timeout_s <= MAX_SECONDS,
        "test_timeout_s": 0 < task.test_timeout_s <= MAX_SECONDS,
        "build_timeout_s": 0 < task.build_timeout_s <= MAX_SECONDS,
        "network.allowed_hosts": len(task.network.allowed_hosts) <= MAX_NAMES
        and all(map(_ALLOWED_HOST.fullmatch, task.network.allowed_hosts))
        and None not in map(parse_allowed_host, task.network.allowed_hosts),
        "steps": len(task.steps) <= MAX_NAMES,
        "services": len(task.services) <= MAX_SERVICES
        and _differ(service.name for service in task.services)
        and not any(find_order_problems(task.services)),
    }
    judged = own | _build("build", task.build) | _tests_environment("tests_environment", task.tests_environment)
    for step in task.steps:
        judged |= _step(f"steps.{step.name[:80]}", step)
    for number, service in enumerate(task.services):
        judged |= _service(f"services.{number}", service)
    wrong = [what for what, right in judged.items() if not right]
    if wrong:
        raise TaskRefused(f"task {task.id[:80]!r} exceeds its limits: {', '.join(wrong)}")
    return task


def _check_file_count(task: Task) -> None:
    environments = (task, *task.tests_environments, *task.services)
    builds = [each.build.files for each in environments if each.build is not None]
    own = [files for each in (task, *task.steps) for files in (each.files, each.tests, each.solution_files)]
    count = sum(map(len, builds + own))
    if count > MAX_TASK_FILES:
        raise TaskRefused(
            f"task {task.id[:80]!r} has {count:,} files, and may have {MAX_TASK_FILES:,}: pack them into archives"
        )


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
        f"{where}.modified_s": build.modified_s.keys() <= build.files.keys()
        and all(abs(each) <= MAX_UNIX_S for each in build.modified_s.values()),
        f"{where}.args": _is_env(build.args),
        f"{where}.target": _is_text(build.target, 200),
    }


def _tests_environment(where: str, own: TestsEnvironment | None) -> dict[str, object]:
    if own is None:
        return {}
    return _build(f"{where}.build", own.build) | {
        f"{where}.image": not own.image or is_reference(own.image),
        f"{where}.env": _is_env(own.env),
        f"{where}.workdir": not own.workdir or _absolute(own.workdir),
        f"{where}.memory_mb": own.memory_mb is None or 0 < own.memory_mb <= MAX_MEMORY_MB,
        f"{where}.cpus": own.cpus is None or 0 < own.cpus <= MAX_CPUS,
        f"{where}.storage_mb": own.storage_mb is None or 0 < own.storage_mb <= MAX_STORAGE_MB,
    }


def _step(where: str, step: TaskStep) -> dict[str, object]:
    return _tests_environment(f"{where}.tests_environment", step.tests_environment) | {
        f"{where}.name": _is_text(step.name, 255),
        f"{where}.files": len(step.files) <= MAX_FILES and all(map(_relative, step.files)),
        f"{where}.tests": all(map(_relative, step.tests)),
        f"{where}.run_tests": "\0" not in step.run_tests,
        f"{where}.solution_files": all(map(_relative, step.solution_files)),
        f"{where}.artifacts": len(step.artifacts) <= MAX_NAMES and all(map(_absolute, step.artifacts)),
        f"{where}.artifact_excludes": _are_excludes(step.artifact_excludes, step.artifacts),
        f"{where}.collect": _are_collected(step.collect),
        f"{where}.test_env": _is_env(step.test_env),
        f"{where}.agent_user": _is_text(step.agent_user, 100),
        f"{where}.tests_user": _is_text(step.tests_user, 100),
        f"{where}.healthcheck": step.healthcheck is None or _is_healthcheck(step.healthcheck),
        f"{where}.agent_timeout_s": 0 < step.agent_timeout_s <= MAX_SECONDS,
        f"{where}.min_rewards": all(map(math.isfinite, step.min_rewards.values())),
        f"{where}.test_timeout_s": 0 < step.test_timeout_s <= MAX_SECONDS,
    }


def _service(where: str, service: TaskService) -> dict[str, object]:
    return _build(f"{where}.build", service.build) | {
        f"{where}.name": _HOST_NAME.fullmatch(service.name),
        f"{where}.image": not service.image or is_reference(service.image),
        f"{where}.entrypoint": _are_words(service.entrypoint or ()),
        f"{where}.command": _are_words(service.command),
        f"{where}.user": _is_text(service.user, 100),
        f"{where}.workdir": not service.workdir or _absolute(service.workdir),
        f"{where}.env": _is_env(service.env),
        f"{where}.healthcheck": _is_text(service.healthcheck or ""),
        f"{where}.shm_mb": 0 < service.shm_mb <= MAX_MEMORY_MB,
        f"{where}.tmpfs": len(service.tmpfs) <= MAX_NAMES and all(map(_absolute, service.tmpfs)),
        f"{where}.hostname": _is_own_host_name(service.hostname),
        f"{where}.aliases": _are_host_names(service.aliases),
        f"{where}.capabilities": {*service.capabilities} <= {*SERVICE_CAPABILITIES},
        f"{where}.pids": 0 < service.pids <= MAX_PIDS,
        f"{where}.restart": RESTART.fullmatch(service.restart),
        f"{where}.ulimits": not any(find_limit_problems(service.ulimits)),
        f"{where}.volumes": _are_shared(service.volumes),
        f"{where}.memory_mb": 0 < service.memory_mb <= MAX_MEMORY_MB,
        f"{where}.cpus": 0 < service.cpus <= MAX_CPUS,
    }


def _are_shared(folders: tuple[SharedFolder, ...]) -> bool:
    return len(folders) <= MAX_NAMES and all(
        _VOLUME_NAME.fullmatch(each.volume) and _absolute(each.target) for each in folders
    )


def _is_own_host_name(name: str) -> bool:
    return not name or _HOST_NAME.fullmatch(name.lower().replace(".", "-")) is not None


def _are_host_names(names: Sequence[str]) -> bool:
    return len(names) <= MAX_NAMES and all(name and _is_own_host_name(name) for name in names)


def _is_text(text: str, most: int = MAX_TEXT) -> bool:
    return "\0" not in text and len(text) <= most


def _are_excludes(patterns: Mapping[str, Sequence[str]], artifacts: Sequence[str]) -> bool:
    return patterns.keys() <= set(artifacts) and all(
        len(each) <= MAX_NAMES and all(_is_text(pattern, MAX_PATTERN) for pattern in each) for each in patterns.values()
    )


def _are_collected(commands: Sequence[CollectCommand]) -> bool:
    return len(commands) <= MAX_NAMES and all(
        _is_text(each.command) and _is_text(each.user, 100) and 0 < each.timeout_s <= MAX_SECONDS for each in commands
    )


def _are_words(command: Sequence[str]) -> bool:
    return len(command) <= MAX_NAMES and all(map(_is_text, command))


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
    return not entry_problem(path) and _plain(path)
