"""Temporary folders for files that grading copies between containers.

A killed process leaves its folder behind; the next process that makes one removes those of dead processes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sandbox.docker import owner

_PREFIX = "longshore-artifacts-"


@contextmanager
def scratch_folder() -> Generator[Path]:
    """Create a folder of this process and remove it when the block ends."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if owner.is_proved_dead(owner.owner_from_file_name(left.name.removeprefix(_PREFIX).partition(",")[0])):
            shutil.rmtree(left, ignore_errors=True)
    own = owner.owner_to_file_name(owner.owner_of_this_process())
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{own},") as folder:
        yield Path(folder)
