"""Live processes and what they hold, read from the kernel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")


def process_group(leader: int) -> set[int]:
    """Pids of the live processes of a group."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(entry.name)) == leader:
                found.add(int(entry.name))
    return found


def listening_at(pid: int) -> set[tuple[str, int]]:
    """Return the addresses and ports on which a process listens; empty for one that is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        connections = psutil.Process(pid).net_connections("inet")
        return {(at.laddr.ip, at.laddr.port) for at in connections if at.status == psutil.CONN_LISTEN}
    return set()


def title(pid: int) -> str:
    """Return a process's title; empty for one that is gone."""
    with contextlib.suppress(OSError):
        return (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]).decode(errors="replace").strip()
    return ""


def shared_memory_of(pids: Iterable[int]) -> set[Path]:
    """Files in shared memory that any of these has mapped; semaphores are, under another name."""
    inodes: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            inodes |= {int(line.split(maxsplit=5)[4]) for line in lines if f" {SHARED_MEMORY}/" in line}
    with os.scandir(SHARED_MEMORY) as entries:
        return {Path(entry.path) for entry in entries if entry.inode() in inodes}
