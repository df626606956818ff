"""The processes of a container on this host, found by its cgroup."""

from __future__ import annotations

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cgroup_procs(pid: int, container: str, root: Path = _CGROUPS, proc: Path = Path("/proc")) -> Path | None:
    """Find the ``cgroup.procs`` file of a container's cgroup; None when process ``pid`` on this host is not in that
    container."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if container in path.rpartition("/")[2] and controllers in ("pids", ""):
            members = root / controllers / path.lstrip("/") / "cgroup.procs"
            if members.exists():
                return members
    return None
