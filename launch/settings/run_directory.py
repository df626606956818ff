"""Settings of a run's directory, which training and supervised training share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from protocol.run_directory.layout import DEFAULT_RUNS_FOLDER, RUN_ID_PATTERN
from protocol.settings import ConfigSection, CountInt, PositiveInt

_MAX_NAME_CHARS = 100
"""Maximum length of ``run.name``: the start time and a number are appended to it."""


def _check_run_name(name: str) -> str:
    """Return ``run.name``.  Raises ValueError if a folder's name cannot start with it."""
    if not RUN_ID_PATTERN.fullmatch(name) or len(name) > _MAX_NAME_CHARS:
        raise ValueError(
            f"run.name = {name!r} cannot begin the name of a run's folder: use at most {_MAX_NAME_CHARS} letters, "
            "digits, '.', '_' and '-', and begin with a letter or digit (--set run.name=NAME)"
        )
    return name


RunNamePrefix = Annotated[str, AfterValidator(_check_run_name)]
"""First part of a default run id."""


class RunDirectorySettings(ConfigSection):
    """Name, seed and folder of a run."""

    name: RunNamePrefix = "run"
    """First part of the default run id."""
    seed: CountInt = 0
    """Seed of every random choice: tasks, initial weights, warm start, sampling, order of sequences."""
    dir: Path = DEFAULT_RUNS_FOLDER
    """Folder of all runs, on a local disk."""
    shared: bool = False
    """Whether other accounts of the machine may read a new run's directory, as far as the umask lets them."""
    disk_reserve_mb: PositiveInt = 512
    """Free space in ``dir``, in MiB, below which no new group starts and no run begins."""
