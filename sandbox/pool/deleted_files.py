"""Files that have no name any more and are held open: they take room on the disk, and no ``du`` finds them."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

_BLOCK = 512


def deleted_file_bytes(processes: Path, places: Sequence[Path], enough: int, proc: Path = Path("/proc")) -> int:
    """Bytes on disk of the nameless files that these processes (a ``cgroup.procs``) hold open or mapped, on their root
    file system or on those of ``places``; in memory (``/dev/shm``, memfd) they count there.  Ends beyond ``enough``.

    Blocks, for use in a thread.
    """
    disks = {each.stat().st_dev for each in places if each.exists()}
    found: dict[tuple[int, int], int] = {}
    for pid in _pids(processes):
        with contextlib.suppress(OSError):  # it has ended
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
