"""Checks the limits of this user's processes: open files, processes, locked memory."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements
from protocol.cli.formatting import format_bytes

_FILES, _FILES_PER_CONTAINER, _FILES_PER_NODE = 2048, 16, 1024
_TASKS, _TASKS_PER_CONTAINER, _TASKS_PER_NODE = 1024, 16, 512
"""Threads count as tasks."""
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Limits; an unlimited one is a large number."""

    files: int
    """Hard limit of open files, to which our processes raise theirs."""
    tasks: int
    """Maximum number of processes and threads of this user or of this process's cgroup."""
    locked_bytes: int
    infiniband: bool


def read_limit_facts(requirements: HostRequirements) -> LimitFacts:
    del requirements
    tasks = [_cgroup_tasks()] if os.geteuid() == 0 else [_cgroup_tasks(), _limit(resource.RLIMIT_NPROC, soft=True)]
    return LimitFacts(
        files=_limit(resource.RLIMIT_NOFILE),
        tasks=min(tasks),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK, soft=True),
        infiniband=Path("/sys/class/infiniband").is_dir(),
    )


def _limit(which: int, *, soft: bool = False) -> int:
    lower, upper = resource.getrlimit(which)
    value = lower if soft else upper
    return _UNLIMITED if value == resource.RLIM_INFINITY else value


def _cgroup_tasks() -> int:
    """Return the smallest readable ``pids.max`` from the root to this process's cgroup (v2)."""
    found = [_UNLIMITED]
    with contextlib.suppress(OSError, IndexError):
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2].lstrip("/")
        root = Path("/sys/fs/cgroup")
        for folder in (root / own, *(root / own).parents):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((folder / "pids.max").read_text()))
            if folder == root:
                break
    return min(found)


def check_limits(facts: LimitFacts, requirements: HostRequirements) -> list[Finding]:
    files = _FILES + requirements.containers * _FILES_PER_CONTAINER + requirements.nodes * _FILES_PER_NODE
    tasks = _TASKS + requirements.containers * _TASKS_PER_CONTAINER + requirements.nodes * _TASKS_PER_NODE
    found: list[Finding] = []
    if facts.files < files:
        found.append(
            failed(
                CheckName.ULIMITS,
                f"a process may have {facts.files:,} files open (`ulimit -Hn`), and "
                f"{requirements.containers} sandboxes and {requirements.nodes} Ray nodes need {files:,}",
                f"raise it: `ulimit -n {files}` as root first, nofile in /etc/security/limits.conf, or `docker run "
                f"--ulimit nofile={files}`",
            )
        )
    if facts.tasks < tasks:
        found.append(
            warning(
                CheckName.ULIMITS,
                f"this user or its cgroup may have {facts.tasks:,} processes and threads, and a run needs {tasks:,}",
                "raise nproc in /etc/security/limits.conf, TasksMax of the systemd unit, or `docker run --pids-limit`",
            )
        )
    if requirements.gpu_keys and facts.infiniband and facts.locked_bytes < _UNLIMITED:
        found.append(
            warning(
                CheckName.ULIMITS,
                f"{format_bytes(facts.locked_bytes)} may be locked (`ulimit -l`), and NCCL registers its buffers with "
                "InfiniBand",
                "set memlock to unlimited in /etc/security/limits.conf, or `docker run --ulimit memlock=-1`",
            )
        )
    return found or [ok(CheckName.ULIMITS, f"{_many(facts.files)} open files, {_many(facts.tasks)} processes")]


def _many(count: int) -> str:
    return "any number of" if count >= _UNLIMITED else f"{count:,}"


ULIMITS_CHECK = make_host_check(
    (CheckName.ULIMITS,), read_limit_facts, check_limits, deadline_s=5.0, timeout_fix="check `ulimit -a`"
)
