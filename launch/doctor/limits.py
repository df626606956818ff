"""Limits on this user's processes: open files, processes, locked memory."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, ok, warning
from launch.doctor.requirements import HostRequirements

_FILES, _FILES_A_CONTAINER, _FILES_A_NODE = 2048, 16, 1024
_TASKS, _TASKS_A_CONTAINER, _TASKS_A_NODE = 1024, 16, 512
"""Threads count."""
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Each a large number where there is no limit."""

    files: int
    """Hard limit: processes of ours raise theirs to it."""
    tasks: int
    """Of this user, or of the cgroup that this process is in."""
    locked_bytes: int
    infiniband: bool


def look(wants: HostRequirements) -> LimitFacts:
    del wants
    tasks = [_of_cgroup()] if os.geteuid() == 0 else [_of_cgroup(), _limit(resource.RLIMIT_NPROC, soft=True)]
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


def _of_cgroup() -> int:
    """The smallest ``pids.max`` on the way to this process's cgroup (v2), as far as it can be read."""
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


def judge(facts: LimitFacts, wants: HostRequirements) -> list[Finding]:
    files = _FILES + wants.containers * _FILES_A_CONTAINER + wants.nodes * _FILES_A_NODE
    tasks = _TASKS + wants.containers * _TASKS_A_CONTAINER + wants.nodes * _TASKS_A_NODE
    found: list[Finding] = []
    if facts.files < files:
        found.append(
            failed(
                CheckName.ULIMITS,
                f"a process may have {facts.files:,} files open (`ulimit -Hn`), and {wants.containers} sandboxes and "
                f"{wants.nodes} Ray nodes want {files:,}",
                f"raise it: `ulimit -n {files}` as root before, nofile in /etc/security/limits.conf, or `docker run "
                f"--ulimit nofile={files}`",
            )
        )
    if facts.tasks < tasks:
        found.append(
            warning(
                CheckName.ULIMITS,
                f"this user or its cgroup may have {facts.tasks:,} processes and threads, and a run wants {tasks:,}",
                "raise nproc in /etc/security/limits.conf, TasksMax of the systemd unit, or `docker run --pids-limit`",
            )
        )
    if wants.gpu_keys and facts.infiniband and facts.locked_bytes < _UNLIMITED:
        found.append(
            warning(
                CheckName.ULIMITS,
                f"{facts.locked_bytes >> 10:,} KB may be locked (`ulimit -l`), and NCCL registers its buffers with "
                "InfiniBand",
                "set memlock to unlimited in /etc/security/limits.conf, or `docker run --ulimit memlock=-1`",
            )
        )
    return found or [ok(CheckName.ULIMITS, f"{_many(facts.files)} open files, {_many(facts.tasks)} processes")]


def _many(count: int) -> str:
    return "any number of" if count >= _UNLIMITED else f"{count:,}"


ULIMITS_CHECK = make_host_check((CheckName.ULIMITS,), look, judge, deadline_s=5.0, timeout_fix="look at `ulimit -a`")
