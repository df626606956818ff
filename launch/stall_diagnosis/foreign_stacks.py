"""Reads the stacks of Python processes from outside, by py-spy: of those that are stopped, and of those that have
registered no stack dump (:mod:`protocol.processes.stack_dumps`), such as Ray's own.

The processes are not halted.  Where this account may not look into others, there is nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PY_SPY = Path(sys.executable).with_name("py-spy")
_DUMP_S = 5.0
"""Longest wait for one process: py-spy takes a tenth of a second."""


def read_foreign_stacks(pids: Iterable[int]) -> dict[int, str]:
    """Return the stacks of all threads of those that are Python processes and can be read.  Blocks."""
    found: dict[int, str] = {}
    for pid in filter(_is_python, pids):
        with suppress(OSError, subprocess.TimeoutExpired):
            dump = subprocess.run(
                (str(_PY_SPY), "dump", "--nonblocking", "--pid", str(pid)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_DUMP_S,
                check=False,
            )
            if dump.returncode == 0:
                found[pid] = dump.stdout
    return found


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("python")
    except OSError:
        return False
