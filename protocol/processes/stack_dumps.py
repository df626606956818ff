"""Stack dumps of other processes on the same machine, to see where a process hangs.

:func:`register_stack_dump` names a file and installs a signal handler: the interpreter's own, written in C, which
appends the stack of every thread even while the main one hangs in a collective.  :func:`request_stack_dumps` sends the
signal.  A stopped process (SIGSTOP) cannot answer, so by default it is continued first.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import orjson

PROCESS_ENDED = "has ended"
_SIGNAL = signal.SIGUSR1
_PATIENCE_S = 2.0
_LOOK_S = 0.05
_open: list[TextIO] = []
"""File that the handler writes to, kept open for the life of the process."""


@dataclass(frozen=True, slots=True)
class _StackDumpHeader:
    """First line of a stack dump file."""

    name: str
    pid: int
    namespace: str


def register_stack_dump(path: Path, name: str) -> None:
    """Write this process's stacks to ``path`` on request; one file per process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    file.write(orjson.dumps(_StackDumpHeader(name, os.getpid(), _process_namespace())).decode() + "\n")
    file.flush()
    faulthandler.register(_SIGNAL, file, all_threads=True, chain=False)
    for former in _open:
        former.close()
    _open[:] = [file]


async def request_stack_dumps(paths: Sequence[Path], *, wake: bool = True) -> dict[str, str]:
    """Make every process registered in ``paths`` write its stacks there.

    Returns name → reason for each process that could not, or that was stopped.  Without ``wake``, stopped processes
    stay stopped and write nothing.
    """
    found: dict[str, str] = {}
    waiting: dict[Path, int] = {}
    for path in paths:
        header = _read_header(path)
        if header is None:
            found[path.stem] = "has not registered for stack dumps yet"
        elif header.namespace != _process_namespace():
            found[header.name] = "runs on another machine"
        elif (state := _state(header.pid)) in {"", "Z"}:
            found[header.name] = PROCESS_ENDED
        elif state == "T" and not wake:
            found[header.name] = "is stopped (SIGSTOP)"
        else:
            waiting[path] = path.stat().st_size
            if state == "T":
                found[header.name] = "was stopped (SIGSTOP)"
            _send(header.pid)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await _until_written(waiting)
    return found


def read_dumping_pid(path: Path) -> int | None:
    """Return the process that writes its stacks to ``path``; None if it is of another machine or unknown."""
    header = _read_header(path)
    return header.pid if header is not None and header.namespace == _process_namespace() else None


async def _until_written(before: Mapping[Path, int]) -> None:
    """Wait until every file has grown and none grows any more."""
    former: list[int] = []
    while True:
        sizes = [path.stat().st_size for path in before]
        if sizes == former and all(size > start for size, start in zip(sizes, before.values(), strict=True)):
            return
        former = sizes
        await asyncio.sleep(_LOOK_S)


def _send(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, _SIGNAL)
        os.kill(pid, signal.SIGCONT)


def _read_header(path: Path) -> _StackDumpHeader | None:
    lines = (_read(path) or b"").splitlines()
    try:
        return _StackDumpHeader(**orjson.loads(lines[0])) if lines else None
    except (orjson.JSONDecodeError, TypeError):
        return None


def _process_namespace() -> str:
    """Return an identifier of the namespace in which process ids are unique."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _state(pid: int) -> str:
    """Return the kernel's state letter of a process; empty if it is gone."""
    stat = _read(Path(f"/proc/{pid}/stat"))
    return "" if stat is None else stat.rpartition(b")")[2].split()[0].decode()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
