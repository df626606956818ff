"""Finds deleted files that are still open: they take up disk space, but ``du`` does not see them."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

_BLOCK = 512


def deleted_file_bytes(processes: Path, paths: Sequence[Path], enough: int, proc: Path = Path("/proc")) -> int:
    """Count the bytes on disk of deleted files that these processes (of a ``cgroup.procs`` file) hold open or mapped.

    Only files on their root file system or on those of ``paths`` count; files in memory (``/dev/shm``, memfd) count as
    memory. Stops once the sum exceeds ``enough``. Blocks, for use in a thread.
    """
    disks = {each.stat().st_dev for each in paths if each.exists()}
    found: dict[tuple[int, int], int] = {}
    for pid in _pids(processes):
        with contextlib.suppress(OSError):  # the process has ended
            disks.add((proc / pid / "root").stat().st_dev)
            for each in _held(proc / pid):
                with contextlib.suppress(OSError):
                    file = each.stat()
                    if stat.S_ISREG(file.st_mode) and not file.st_nlink and file.st_dev in disks:
                        found[file.st_dev, file.st_ino] = file.st_blocks * _BLOCK
        if sum(found.values()) > enough:
            break
    return sum(found.values())


def _pids(processes: Path) -> list[str]:
    try:
        return processes.read_text().split()
    except OSError:  # the container has ended
        return []


def _held(process: Path) -> Iterator[Path]:
    yield from (process / "fd").iterdir()
    for line in (process / "maps").read_text(errors="replace").splitlines():
        if line.endswith(" (deleted)"):
            yield process / "map_files" / line.split(" ", 1)[0]
