"""A process' stacks, when another one of the same machine asks: whoever hangs can be asked where.

:func:`offer_stacks` names a file and waits for a signal; the interpreter's own handler, written in C, then appends the
stack of every thread, also while the main one hangs in a collective.  :func:`ask_stacks` sends the signal.  A process
that is stopped (SIGSTOP) could not answer: ask those that are to be killed to go on.
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
"""What the handler writes to, for the life of the process."""


@dataclass(frozen=True, slots=True)
class _StackDumpHeader:
    """The first line of a file of stacks."""

    name: str
    pid: int
    place: str


def register_stack_dump(path: Path, name: str) -> None:
    """Let others ask for this process' stacks, which are then written to ``path``; at most one file a process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    file.write(orjson.dumps(_StackDumpHeader(name, os.getpid(), _process_namespace())).decode() + "\n")
    file.flush()
    faulthandler.register(_SIGNAL, file, all_threads=True, chain=False)
    for former in _open:
        former.close()
    _open[:] = [file]


async def request_stack_dumps(paths: Sequence[Path], *, wake: bool = True) -> dict[str, str]:
    """Have every process that offered its stacks in ``paths`` write them there.  Name → what kept one from it, or that
    it was stopped; nobody else is in the answer.  Without ``wake`` one that is stopped stays so, and is not asked."""
    found: dict[str, str] = {}
    waiting: dict[Path, int] = {}
    for path in paths:
        header = _read_header(path)
        if header is None:
            found[path.stem] = "has not come so far as to offer its stacks"
        elif header.place != _process_namespace():
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


async def _until_written(before: Mapping[Path, int]) -> None:
    """Until every file has grown, and none grows any more."""
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
    """Where a process id means the same process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _state(pid: int) -> str:
    """The kernel's letter for a process; empty for one that is gone."""
    stat = _read(Path(f"/proc/{pid}/stat"))
    return "" if stat is None else stat.rpartition(b")")[2].split()[0].decode()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
