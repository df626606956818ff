"""Room on this machine for what a grading carries from one container to another.

A process that is killed leaves its folder; who makes the next one removes those of the dead.
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
    """A folder of this process, removed at the end."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if owner.is_proved_dead(owner.owner_from_file_name(left.name.removeprefix(_PREFIX).partition(",")[0])):
            shutil.rmtree(left, ignore_errors=True)
    mine = owner.owner_to_file_name(owner.owner_of_this_process())
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{mine},") as folder:
        yield Path(folder)
