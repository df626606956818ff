"""Types of command arguments that name a run: by its directory, or by its id if it is in the default folder of runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from tyro.conf import Positional

from protocol.cli.arguments import option
from protocol.run_directory.layout import find_folder
from protocol.run_directory.plain_files import require_plain_files


def _find_readable_folder(path: Path) -> Path:
    """Return what :func:`find_folder` does.  Raises RunDirectoryError if reading it might never end."""
    found = find_folder(path)
    with suppress(OSError):  # the command says what is wrong with a folder that it cannot list
        require_plain_files(found)
    return found


RunFolder = Annotated[Path, AfterValidator(_find_readable_folder)]
"""A run's directory, or its id."""
RunPath = Positional[Annotated[RunFolder, option("RUN"), Field(description="The run's directory, or its id.")]]
