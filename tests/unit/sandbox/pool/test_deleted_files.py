"""If these fail, an agent fills the disk with files that no ``du`` finds."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from sandbox.pool.deleted_files import deleted_file_bytes

MB = 1 << 20
LIBC = ctypes.CDLL(None)  # Python's mmap keeps a descriptor of its own
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a ``cgroup.procs`` file with this process."""
    processes = tmp_path / "cgroup.procs"
    processes.write_text(f"{os.getpid()}\n")
    return processes


def test_an_unlinked_file_counts_while_it_is_open(tmp_path: Path, mine: Path) -> None:
    path = tmp_path / "file"
    before = deleted_file_bytes(mine, [tmp_path], 1 << 40)
    with path.open("wb") as file, path.open("rb"):
        file.write(bytes(MB))
        file.flush()
        os.fsync(file.fileno())
        assert deleted_file_bytes(mine, [tmp_path], 1 << 40) == before, "du finds what has a name"
        path.unlink()
        assert deleted_file_bytes(mine, [tmp_path], 1 << 40) - before == MB, "open twice, it counts once"
    assert deleted_file_bytes(mine, [tmp_path], 1 << 40) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at what a process has mapped")
def test_a_file_that_is_only_memory_mapped_counts(tmp_path: Path, mine: Path) -> None:
    path = tmp_path / "file"
    before = deleted_file_bytes(mine, [tmp_path], 1 << 40)
    with path.open("w+b") as file:
        file.write(bytes(MB))
        file.flush()
        os.fsync(file.fileno())
        mapped = LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    path.unlink()
    assert deleted_file_bytes(mine, [tmp_path], 1 << 40) - before == MB
    LIBC.munmap(mapped, 4096)


def test_memory_files_and_ended_processes_count_as_zero(tmp_path: Path, mine: Path) -> None:
    before = deleted_file_bytes(mine, [tmp_path], 1 << 40)
    memory = os.memfd_create("some")
    try:
        os.write(memory, bytes(MB))
        assert deleted_file_bytes(mine, [tmp_path], 1 << 40) == before
    finally:
        os.close(memory)
    mine.write_text(f"{1 << 30}\n")
    assert deleted_file_bytes(mine, [tmp_path / "none"], 1 << 40) == 0
    assert deleted_file_bytes(tmp_path / "none", [], 1 << 40) == 0
