"""The owner of a container, written so that its death can be proved.

``boot/pidns/pid/start`` names a process by boot, PID namespace, PID and start time. An owner in another host,
namespace or boot never counts as dead; the container's own expiry ends it.
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


def _boot_and_namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def owner_of_process(pid: int) -> str:
    """Return the owner label for a process of this PID namespace."""
    return f"{_boot_and_namespace()}/{pid}/{_start_ticks(pid)}"


def owner_of_this_process() -> str:
    """Return the owner label for the calling process."""
    return owner_of_process(os.getpid())


def owner_to_file_name(owner: str) -> str:
    """Write an owner as part of a file name, without dots and commas."""
    return owner.replace("/", "_")


def owner_from_file_name(part: str) -> str:
    """Reverse :func:`owner_to_file_name`."""
    return part.replace("_", "/")


def owner_pid(owner: str) -> int:
    """Return the PID in an owner label."""
    return int(owner.split("/")[-2])


def is_proved_dead(owner: str) -> bool:
    """Return whether the owner was a process of this boot and namespace that no longer runs."""
    boot_and_namespace, _, process = owner.rpartition("/")[0].rpartition("/")
    start = owner.rpartition("/")[2]
    if boot_and_namespace != _boot_and_namespace() or not process.isdigit():
        return False
    return _start_ticks(int(process)) != start
