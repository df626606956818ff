"""Hides test ids from the programs that tests start: a parametrized test's id reveals the expected result.

It changes parts of pytest itself, whose version is pinned (:mod:`sandbox.toolchain.in_container.pins`). Standard
library and pytest only: a copy runs in containers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from fcntl import F_SETFL, fcntl
from io import FileIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from _pytest import capture, runner, tmpdir

_PLACES = slice(45, 47)
"""Fields after the name in ``/proc/PID/stat``: the addresses at which the arguments begin and end in memory."""


class WriteOnlyFile(FileIO):
    """A temporary file for captured output: a process that inherits its descriptor can write to it but not read it."""

    def __init__(self, buffering: int = 0) -> None:
        del buffering
        with tempfile.TemporaryFile(buffering=0) as file:
            super().__init__(os.dup(file.fileno()), "rb+")
        fcntl(super().fileno(), F_SETFL, os.O_APPEND)
        self._writer = os.open(f"/proc/self/fd/{super().fileno()}", os.O_WRONLY | os.O_APPEND)

    def fileno(self) -> int:
        return super().fileno() if self.closed else self._writer

    def close(self) -> None:
        if not self.closed:
            os.close(self._writer)
        super().close()


def hide_test_ids() -> None:
    """Hide the ids for the rest of this process."""
    _shorten(runner, "_update_current_test_var", lambda item: SimpleNamespace(nodeid=_without_id(item.nodeid)))
    _shorten(
        tmpdir, "_mk_tmp", lambda request: SimpleNamespace(node=SimpleNamespace(name=_without_id(request.node.name)))
    )
    capture.TemporaryFile = WriteOnlyFile  # pyright: ignore[reportPrivateImportUsage]  pytest opens its files by this name


def _shorten(module: ModuleType, function: str, shortened: Callable[[Any], Any]) -> None:
    """Replace a function's first argument."""
    whole = getattr(module, function)

    def short(first: Any, *more: Any) -> Any:
        return whole(shortened(first), *more)

    setattr(module, function, short)


def erase_arguments() -> None:
    """Erase the arguments of this process, which every user may read in ``/proc/PID/cmdline``."""
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_PLACES])
    with Path("/proc/self/mem").open("rb+", buffering=0) as memory:
        memory.seek(begin)
        memory.write(bytes(end - begin))


def _without_id(node: str) -> str:
    return node.partition("[")[0]
