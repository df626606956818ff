"""Who owns a container, written so that its death can be proved and never guessed.

``boot/pidns/pid/start``: a process of this very boot and PID namespace, by id and start time.  An owner elsewhere
(another host, another namespace, an earlier boot) is never called dead; the container's own expiry speaks for it.
"""

from __future__ import annotations

import os
from pathlib import Path


def _start_ticks(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def owner_of_process(pid: int) -> str:
    """The label of a process of this PID namespace."""
    return f"{_place()}/{pid}/{_start_ticks(pid)}"


def owner_of_this_process() -> str:
    """The label of the process that asks."""
    return owner_of_process(os.getpid())


def owner_to_file_name(owner: str) -> str:
    """The label as a part of a file's name, in which are neither dots nor commas."""
    return owner.replace("/", "_")


def owner_from_file_name(part: str) -> str:
    """The label that :func:`file_name` made ``part`` of."""
    return part.replace("_", "/")


def owner_pid(owner: str) -> int:
    return int(owner.split("/")[-2])


def is_proved_dead(owner: str) -> bool:
    """Whether the owner was a process of this boot and namespace that runs no more."""
    place, _, process = owner.rpartition("/")[0].rpartition("/")
    start = owner.rpartition("/")[2]
    if place != _place() or not process.isdigit():
        return False
    return _start_ticks(int(process)) != start
